// CANN generates tiling structs here; kernels of this project have theirs in op_kernel/.
#pragma once
