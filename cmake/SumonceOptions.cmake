# Options and the flags that determinism needs (docs/DETERMINISM.md).
option(SUMONCE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_BUILD_BENCH "Build the Google Benchmark programs" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_BUILD_SCENARIOS "One ctest entry per scenario file" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_WERROR "Warnings are errors" OFF)
set(SUMONCE_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
foreach(feature MPI CUDA NCCL)
  set(SUMONCE_WITH_${feature} AUTO CACHE STRING "AUTO, ON or OFF: ${feature}")
  set_property(CACHE SUMONCE_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  enable_testing()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

add_library(sumonce_flags INTERFACE)
# Same bits on every compiler: no contraction but where std::fma is written, never fast-math.
target_compile_options(sumonce_flags INTERFACE -ffp-contract=off -fno-fast-math -Wall -Wextra
                                               -Wno-missing-field-initializers)
if(SUMONCE_WERROR)
  target_compile_options(sumonce_flags INTERFACE -Werror)
endif()
if(SUMONCE_SANITIZE)
  target_compile_options(sumonce_flags INTERFACE -fsanitize=${SUMONCE_SANITIZE}
                                                 -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sumonce_flags INTERFACE -fsanitize=${SUMONCE_SANITIZE})
endif()
target_include_directories(sumonce_flags INTERFACE ${PROJECT_SOURCE_DIR})
