# The toolchain file for aarch64 Linux with Debian's and Ubuntu's cross compiler (g++-aarch64-linux-gnu). QEMU's user mode
# (qemu-user or qemu-user-static) runs the programs of the build.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
find_program(NPU_ROPE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(NPU_ROPE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${NPU_ROPE_QEMU}" -L /usr/aarch64-linux-gnu)
endif()
