// CANN generates a kernel's tiling structs in this header. The host's code includes it, but defines them itself.
#pragma once
