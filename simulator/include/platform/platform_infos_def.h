// A header of the host that some kernels include. They use nothing of it.
#pragma once
