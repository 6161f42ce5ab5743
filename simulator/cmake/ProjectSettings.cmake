# Settings of the builds of ascend_sim, and of npu_rope, which is compiled in the same way. Include it after project().
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# add_project_options(<project>): the options <PROJECT>_SANITIZE, <PROJECT>_WERROR and <PROJECT>_C_TESTS, and the target
# <project>_options with the warnings, sanitizers and include root of all targets of the project. HAS_INSTRUCTIONS: a
# property of targets that compile kernels.
function(add_project_options project)
  string(TOUPPER ${project} prefix)
  # A variable of the caller must remain: set(CACHE) without policy CMP0126 (CMake 3.21) would remove it.
  if(NOT DEFINED ${prefix}_SANITIZE)
    set(${prefix}_SANITIZE OFF CACHE STRING
      "Sanitizers: OFF, ON (AddressSanitizer, UndefinedBehaviorSanitizer) or thread (ThreadSanitizer)")
  endif()
  option(${prefix}_WERROR "Treat warnings as errors" OFF)
  option(${prefix}_C_TESTS "Build the C test programs" OFF)
  add_library(${project}_options INTERFACE)
  target_include_directories(${project}_options INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${project}_options INTERFACE -Wall -Wextra $<$<BOOL:${${prefix}_WERROR}>:-Werror>)
  if(${prefix}_SANITIZE)
    # Only the fuzzers are built by Clang. AddressSanitizer's runtime for those in Python lacks the checks function and
    # vptr.
    set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined
      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function,vptr>)
    if(${prefix}_SANITIZE STREQUAL thread)
      # -Wno-tsan: fences are not modelled. The library's own order streaming stores, which no sanitizer follows.
      set(sanitizers -fsanitize=thread $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
    list(APPEND sanitizers -fno-omit-frame-pointer -g1)
    # A level above -O1 doubles the time of compilation. So does -O1 for instrumented instructions, which are templates.
    target_compile_options(${project}_options INTERFACE ${sanitizers}
      -O$<IF:$<BOOL:$<TARGET_PROPERTY:HAS_INSTRUCTIONS>>,0,1>)
    target_link_options(${project}_options INTERFACE ${sanitizers})
  endif()
endfunction()

# test_sanitizer(<project> <library> ...): in a build with sanitizers, tests that they are in these libraries.
function(test_sanitizer project)
  string(TOUPPER ${project} prefix)
  if(NOT ${prefix}_SANITIZE)
    return()
  endif()
  set(symbol __asan_report)
  if(${prefix}_SANITIZE STREQUAL thread)
    set(symbol __tsan_func_entry)
  endif()
  foreach(library ${ARGN})
    add_test(NAME sanitizer_${library} COMMAND ${CMAKE_NM} -D $<TARGET_FILE:${library}>)
    set_tests_properties(sanitizer_${library} PROPERTIES LABELS threads PASS_REGULAR_EXPRESSION ${symbol})
  endforeach()
endfunction()
