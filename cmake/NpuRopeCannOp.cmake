# The operators' CANN definitions: op_host/<stem>_def.cpp, executed by simulator/cann without CANN, and
# the simulated operator package that is generated from them, libcust_opapi.so. cmake/NpuRopeNpu.cmake builds
# the real package.
include(cmake/NpuRopeNpu.cmake)
# A program of this build generates the interfaces, so it must run on this machine.
if(NOT TARGET npu_rope_sim OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  function(npu_rope_add_cann_op)
  endfunction()
  return()
endif()

add_library(npu_rope_cann_options INTERFACE)
target_include_directories(npu_rope_cann_options INTERFACE simulator/cann/include)
target_compile_options(npu_rope_cann_options INTERFACE -O1)  # nothing here is hot
target_link_libraries(npu_rope_cann_options INTERFACE npu_rope_options)

# The headers of the definitions and the code that executes them.
add_library(npu_rope_cann_host STATIC
  simulator/cann/host/call_tensors.cpp
  simulator/cann/host/contexts.cpp
  simulator/cann/host/device_view.cpp
  simulator/cann/host/executors.cpp
  simulator/cann/host/json_reader.cpp
  simulator/cann/host/kernel_file.cpp
  simulator/cann/host/kernel_names.cpp
  simulator/cann/host/op_call.cpp
  simulator/cann/host/op_def.cpp
  simulator/cann/host/op_launch.cpp
  simulator/cann/host/package_files.cpp
  simulator/cann/host/registry.cpp
  simulator/cann/host/tiling_cache.cpp
  simulator/src/profiles.cpp)
target_link_libraries(npu_rope_cann_host PUBLIC npu_rope_cann_options)

# CANN compiles definitions three times: for the interfaces, the shapes and the tilings.
add_library(npu_rope_cann_defs OBJECT)
add_library(npu_rope_cann_shapes OBJECT)
add_library(npu_rope_cann_tilings OBJECT)
target_compile_definitions(npu_rope_cann_shapes PRIVATE OP_PROTO_LIB)
target_compile_definitions(npu_rope_cann_tilings PRIVATE OP_TILING_LIB)
# From CANN's contexts to the checks and tilings of npu_rope_op_host.
file(GLOB from_cann CONFIGURE_DEPENDS op_host/*cann.cpp)
add_library(npu_rope_cann_op_host OBJECT ${from_cann})
target_link_libraries(npu_rope_cann_op_host PUBLIC npu_rope_op_host)
foreach(part defs shapes tilings op_host)
  target_link_libraries(npu_rope_cann_${part} PRIVATE npu_rope_cann_options)
endforeach()

# npu_rope_add_cann_op(<stem>): the operator's definition op_host/<stem>_def.cpp.
function(npu_rope_add_cann_op stem)
  foreach(part defs shapes tilings)
    target_sources(npu_rope_cann_${part} PRIVATE op_host/${stem}_def.cpp)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY NPU_ROPE_CANN_OPS ${stem})
endfunction()

# Run at the end of CMakeLists.txt, when all operators are known.
function(npu_rope_add_cann_package)
  get_property(stems GLOBAL PROPERTY NPU_ROPE_CANN_OPS)
  get_property(socs GLOBAL PROPERTY NPU_ROPE_CANN_SOCS)
  add_executable(npu_rope_op_build simulator/cann/host/op_build.cpp simulator/cann/host/package_writer.cpp
    $<TARGET_OBJECTS:npu_rope_cann_defs>)
  target_link_libraries(npu_rope_op_build PRIVATE npu_rope_cann_op_host npu_rope_cann_host)

  set(opp "${CMAKE_BINARY_DIR}/simcann_opp")
  set(generated "${CMAKE_BINARY_DIR}/cann_op_build")
  foreach(stem IN LISTS stems)
    list(APPEND headers "${generated}/aclnn_npu_${stem}.h")
    list(APPEND sources "${generated}/aclnn_npu_${stem}.cpp")
  endforeach()
  foreach(soc IN LISTS socs)
    list(APPEND descriptions "${generated}/aic-${soc}-ops-info.json")
    set(config "${opp}/op_impl/ai_core/tbe/config/${soc}")
    list(APPEND kernel_lists "${opp}/op_impl/ai_core/tbe/kernel/config/${soc}/binary_info_config.json")
    list(APPEND copy_descriptions COMMAND ${CMAKE_COMMAND} -E make_directory "${config}"
      COMMAND ${CMAKE_COMMAND} -E copy "${generated}/aic-${soc}-ops-info.json" "${config}")
  endforeach()
  add_custom_command(OUTPUT ${headers} ${sources} ${descriptions} ${kernel_lists}
    COMMAND ${CMAKE_COMMAND} -E rm -rf "${opp}/op_impl/ai_core/tbe/kernel"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${generated}" "${opp}/op_api/include"
    COMMAND npu_rope_op_build "${generated}" "${opp}"
    COMMAND ${CMAKE_COMMAND} -E copy ${headers} "${opp}/op_api/include"
    ${copy_descriptions}
    DEPENDS npu_rope_op_build VERBATIM)

  # The functions of simulator/cann/runtime/objects.h come from the process's CANN runtime: the simulated
  # one, if it is built, or that of a test.
  add_library(npu_rope_cust_opapi SHARED ${sources}
    $<TARGET_OBJECTS:npu_rope_cann_defs> $<TARGET_OBJECTS:npu_rope_cann_shapes>)
  target_include_directories(npu_rope_cust_opapi PRIVATE "${generated}")
  target_link_libraries(npu_rope_cust_opapi PRIVATE
    npu_rope_cann_op_host npu_rope_cann_host npu_rope_sim $<TARGET_NAME_IF_EXISTS:npu_rope_cann> ${CMAKE_DL_LIBS})
  set_target_properties(npu_rope_cust_opapi PROPERTIES
    OUTPUT_NAME cust_opapi LIBRARY_OUTPUT_DIRECTORY "${opp}/op_api/lib" INSTALL_RPATH "\$ORIGIN/../../..")

  # The tilings, which the runtime loads at the first call.
  add_library(npu_rope_cust_opmaster SHARED simulator/cann/host/tiling_library.cpp
    $<TARGET_OBJECTS:npu_rope_cann_tilings>)
  target_link_libraries(npu_rope_cust_opmaster PRIVATE npu_rope_cann_op_host npu_rope_cann_host)
  set(tilings op_impl/ai_core/tbe/op_tiling/lib/linux/${CMAKE_SYSTEM_PROCESSOR})
  set_target_properties(npu_rope_cust_opmaster PROPERTIES
    OUTPUT_NAME cust_opmaster_rt2.0 LIBRARY_OUTPUT_DIRECTORY "${opp}/${tilings}")
  add_dependencies(npu_rope_cust_opapi npu_rope_cust_opmaster)

  install(TARGETS npu_rope_cust_opmaster LIBRARY DESTINATION ${lib_dir}/simcann_opp/${tilings})
  install(TARGETS npu_rope_cust_opapi LIBRARY DESTINATION ${lib_dir}/simcann_opp/op_api/lib)
  install(FILES ${headers} DESTINATION ${lib_dir}/simcann_opp/op_api/include)
  install(DIRECTORY "${opp}/op_impl/ai_core/tbe/kernel" DESTINATION ${lib_dir}/simcann_opp/op_impl/ai_core/tbe)
  foreach(soc description IN ZIP_LISTS socs descriptions)
    install(FILES ${description} DESTINATION ${lib_dir}/simcann_opp/op_impl/ai_core/tbe/config/${soc})
  endforeach()
endfunction()
# The SoCs that definitions name.
set_property(GLOBAL PROPERTY NPU_ROPE_CANN_SOCS ascend310p ascend910_93 ascend910b)
cmake_language(DEFER CALL npu_rope_add_cann_package)
