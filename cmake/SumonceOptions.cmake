# Options, and the flags that determinism needs (docs/DETERMINISM.md).
option(SUMONCE_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_BUILD_BENCH "Build the Google Benchmark programs" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_BUILD_SCENARIOS "One ctest entry per scenario file" ${PROJECT_IS_TOP_LEVEL})
option(SUMONCE_WERROR "Warnings are errors" OFF)
set(SUMONCE_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
option(SUMONCE_FUZZ "Build the fuzz targets as libFuzzer programs (Clang)" OFF)
set(SUMONCE_SCENARIO_ARGS "" CACHE STRING "More arguments of the ctest entries' sumonce run")
foreach(feature MPI CUDA NCCL)
  set(SUMONCE_WITH_${feature} AUTO CACHE STRING "AUTO, ON or OFF: ${feature}")
  set_property(CACHE SUMONCE_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
  if(NOT SUMONCE_WITH_${feature} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "SUMONCE_WITH_${feature}=${SUMONCE_WITH_${feature}}: expected AUTO, ON or OFF")
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  enable_testing()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # The program is <build>/sumonce; sumonce_test keeps the test programs in their folders.
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  find_program(SUMONCE_CCACHE ccache)
  foreach(language C CXX)
    if(SUMONCE_CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${SUMONCE_CCACHE})
    endif()
  endforeach()
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# Linking with any of these turns denormals off for the whole process, so no later flag can take it back.
string(TOUPPER "${CMAKE_BUILD_TYPE}" sumonce_build_type)
if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${sumonce_build_type}}" MATCHES
   "(-ffast-math|-Ofast|-funsafe-math-optimizations)")
  message(FATAL_ERROR "${CMAKE_MATCH_1} in the compiler flags: sumonce promises the same bits everywhere; take it out")
endif()

add_library(sumonce_flags INTERFACE)
# Same bits on every compiler: no contraction but where std::fma is written, never fast-math.
target_compile_options(sumonce_flags INTERFACE -ffp-contract=off -fno-fast-math)
target_compile_options(sumonce_flags INTERFACE
                       $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra> $<BUILD_INTERFACE:-Wno-missing-field-initializers>)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In large translation units GCC 12 warns of what it optimised itself (GCC PR 105329, 105562); the preset dev, file by
  # file, has these warnings.
  target_compile_options(sumonce_flags INTERFACE $<BUILD_INTERFACE:-Wno-maybe-uninitialized>
                                                 $<BUILD_INTERFACE:-Wno-restrict>)
endif()
if(SUMONCE_WERROR)
  target_compile_options(sumonce_flags INTERFACE $<BUILD_INTERFACE:-Werror>)
endif()
if(SUMONCE_SANITIZE)
  target_compile_options(sumonce_flags INTERFACE -fsanitize=${SUMONCE_SANITIZE}
                                                 -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(SUMONCE_SANITIZE MATCHES undefined)
    # What costs most of the compile time: checks that AddressSanitizer nearly repeats, and the tests' own code.
    set(in_test $<BOOL:$<TARGET_PROPERTY:SUMONCE_IS_TEST>>)
    target_compile_options(sumonce_flags INTERFACE -fno-sanitize=null,object-size,vptr
                                                   $<BUILD_INTERFACE:$<${in_test}:-fno-sanitize=undefined>>)
  endif()
  target_link_options(sumonce_flags INTERFACE -fsanitize=${SUMONCE_SANITIZE})
endif()
if(SUMONCE_FUZZ)
  target_compile_options(sumonce_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(sumonce_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:include/sumonce>)
