// A header of the host that some kernels include without using it.
#pragma once
