# The simulated CANN runtime under torch_npu: libnpu_rope_cann. It needs neither CANN nor torch_npu. At first use,
# npu_rope/simcann/stubs.py creates the missing CANN symbols of an installed torch_npu.
option(NPU_ROPE_CANN "Build the simulated CANN runtime" ON)
if(NOT NPU_ROPE_CANN OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  return()
endif()

find_package(Threads REQUIRED)
file(GLOB cann_sources CONFIGURE_DEPENDS simulator/cann/runtime/*.cpp simulator/cann/opapi/*.cpp)
add_library(npu_rope_cann SHARED ${cann_sources})
# -ffp-contract=off: the stand-ins round after each step, on every machine.
target_compile_options(npu_rope_cann PRIVATE -O1 -ffp-contract=off)
target_link_libraries(npu_rope_cann PRIVATE npu_rope_options Threads::Threads ${CMAKE_DL_LIBS})
# Bind to its own functions, even if a process has loaded others of the same names.
target_link_options(npu_rope_cann PRIVATE -Wl,-Bsymbolic)
if(SKBUILD)
  install(TARGETS npu_rope_cann LIBRARY DESTINATION npu_rope/lib)
else()
  install(TARGETS npu_rope_cann LIBRARY DESTINATION lib)
endif()
