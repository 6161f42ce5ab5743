# Generates the valid calls from which fuzz_aclnn.cpp starts, and sets its include folders.
function(npu_rope_add_valid_calls program)
  find_package(Python COMPONENTS Interpreter REQUIRED)
  set(simulator ${PROJECT_SOURCE_DIR}/simulator)
  set(script ${PROJECT_SOURCE_DIR}/tests/fuzz/coverage/valid_calls.py)
  set(calls ${CMAKE_CURRENT_BINARY_DIR}/valid_calls.inc)
  add_custom_command(OUTPUT ${calls}
    COMMAND ${Python_EXECUTABLE} ${script} > ${calls}
    DEPENDS ${script} ${simulator}/tests/opapi/neighbours.txt ${simulator}/cann/opapi/functions.def)
  target_sources(${program} PRIVATE ${calls})
  target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_BINARY_DIR} ${simulator} ${simulator}/cann/include)
endfunction()
