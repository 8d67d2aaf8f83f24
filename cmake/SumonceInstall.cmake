# The libraries for other projects: find_package(sumonce), targets sumonce::<folder>, headers below include/sumonce.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(sumonce_folders base comm spmd layers sim verify cost capture report)
set(targets sumonce_flags sumonce_sleef sumonce_xxhash sumonce_random123 sumonce_proto)
foreach(folder ${sumonce_folders})
  list(APPEND targets sumonce_${folder})
  # Generated protobuf headers are in no public header, and tests bring their own.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sumonce
          FILES_MATCHING PATTERN *.h PATTERN testing EXCLUDE PATTERN conformance EXCLUDE)
endforeach()
foreach(target ${targets})
  string(REGEX REPLACE "^sumonce_" "" exported ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${exported})
endforeach()
install(TARGETS ${targets} EXPORT sumonceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(config ${CMAKE_INSTALL_LIBDIR}/cmake/sumonce)
install(EXPORT sumonceTargets NAMESPACE sumonce:: DESTINATION ${config})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/sumonceConfig.cmake.in ${PROJECT_BINARY_DIR}/sumonceConfig.cmake
                              INSTALL_DESTINATION ${config})
# Before 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sumonceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sumonceConfig.cmake ${PROJECT_BINARY_DIR}/sumonceConfigVersion.cmake
        DESTINATION ${config})
