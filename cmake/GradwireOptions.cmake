# Defines options, compiler settings and optional libraries. If a library is AUTO and missing, its part is off and the
# summary has a line about it; if it is ON and missing, this is an error.
include(GNUInstallDirs)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

find_program(GRADWIRE_CCACHE ccache)
if(GRADWIRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this setting ccache never caches a unit that has precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${GRADWIRE_CCACHE})
endif()

option(BUILD_SHARED_LIBS "libgradwire as a shared object" OFF)
option(GRADWIRE_SESSION "Plan, session and what stands on them; OFF: what needs no Debian library" ON)
option(GRADWIRE_NVTX "Name what is enqueued on a GPU, for profilers" OFF)
option(GRADWIRE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(GRADWIRE_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(GRADWIRE_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(GRADWIRE_CLI "Build the tool gradwire" ${PROJECT_IS_TOP_LEVEL})
option(GRADWIRE_INSTALL "Install and export targets" ${PROJECT_IS_TOP_LEVEL})
option(GRADWIRE_WERROR "Warnings are errors, where they are g++ 12's: others warn of more, and wrongly at times" OFF)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT CMAKE_CXX_COMPILER_VERSION MATCHES "^12[.]")
  set(GRADWIRE_WERROR OFF)  # users who build there want a program
endif()
option(GRADWIRE_GPU_CHECK "Build the programs of tests/gpu, where there is a CUDA compiler" ${PROJECT_IS_TOP_LEVEL})
set(GRADWIRE_NCCL_ROOT "" CACHE PATH "Where NCCL is: DIR/include/nccl.h and DIR/lib/libnccl.so.2, as in a Python wheel's nvidia/nccl")
set(GRADWIRE_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "What device code is compiled for; native: this machine's GPU, where there is one")
set(GRADWIRE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")

foreach(library MPI MPICH HIGHWAY PROTOBUF HWLOC TORCH TORCH_PYTHON GLOO CUDA NCCL PROMETHEUS OPENSSL)
  set(GRADWIRE_${library} AUTO CACHE STRING "AUTO, ON or OFF")
  set_property(CACHE GRADWIRE_${library} PROPERTY STRINGS AUTO ON OFF)
  set(GRADWIRE_HAVE_${library} OFF)
endforeach()
set(GRADWIRE_SUMMARY "")
if(NOT GRADWIRE_SESSION)
  foreach(part TESTS BENCH EXAMPLES CLI INSTALL)
    set(GRADWIRE_${part} OFF)
  endforeach()
  list(APPEND GRADWIRE_SUMMARY
    "SESSION: off (GRADWIRE_SESSION=OFF): no policies, sessions, tool, C API, drop-ins, examples, benchmarks, GoogleTest suites, nothing to install")
endif()

# gradwire_optional(NAME FOUND_VARIABLE WHAT_IS_LOST PACKAGE): settles GRADWIRE_HAVE_<NAME> after a search.
function(gradwire_optional name found lost package)
  if(GRADWIRE_${name} STREQUAL "OFF")
    set(line "${name}: off (GRADWIRE_${name}=OFF): ${lost}")
  elseif(found)
    set(GRADWIRE_HAVE_${name} ON PARENT_SCOPE)
    set(line "${name}: on")
  elseif(GRADWIRE_${name} STREQUAL "ON")
    message(FATAL_ERROR "gradwire: GRADWIRE_${name}=ON but it was not found; install ${package}")
  else()
    set(line "${name}: off (not found: install ${package}): ${lost}")
  endif()
  set(GRADWIRE_SUMMARY ${GRADWIRE_SUMMARY} "${line}" PARENT_SCOPE)
endfunction()

# gradwire_required(FOUND NAME DEB_PACKAGE RPM_PACKAGE) ends with the packages to install if the library was not found.
function(gradwire_required found name deb rpm)
  if(NOT found)
    message(FATAL_ERROR "gradwire: ${name} was not found. Install ${deb} (${rpm} on rpm systems), or everything at once: ./run setup\n"
      "  Where you are not root, install ${name} under a prefix of your own, export CMAKE_PREFIX_PATH=PREFIX, and run the same command again.")
  endif()
endfunction()

find_package(Threads REQUIRED)
if(GRADWIRE_SESSION)
  # Plan and session need these; they are small, and come from the distribution.
  find_package(spdlog QUIET)
  gradwire_required("${spdlog_FOUND}" spdlog libspdlog-dev spdlog-devel)
  # Only the headers of spdlog and fmt are used: their libraries are shared objects in most systems, and compute nodes
  # lack them.
  add_library(gradwire_spdlog INTERFACE)
  foreach(target spdlog::spdlog_header_only fmt::fmt)
    if(TARGET ${target})
      target_include_directories(gradwire_spdlog SYSTEM INTERFACE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
    endif()
  endforeach()
  target_compile_definitions(gradwire_spdlog INTERFACE FMT_HEADER_ONLY
    $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_COMPILE_DEFINITIONS>)
  find_package(nlohmann_json QUIET)
  gradwire_required("${nlohmann_json_FOUND}" nlohmann-json nlohmann-json3-dev json-devel)
  find_package(PkgConfig QUIET)
  gradwire_required("${PkgConfig_FOUND}" pkg-config pkg-config pkgconf-pkg-config)
  pkg_check_modules(TOMLPLUSPLUS QUIET tomlplusplus)
  if(NOT TOMLPLUSPLUS_FOUND)  # its headers suffice
    find_path(GRADWIRE_TOMLPLUSPLUS_DIR toml++/toml.h)
    if(NOT GRADWIRE_TOMLPLUSPLUS_DIR)
      message(FATAL_ERROR "gradwire: toml++ was not found. Install libtomlplusplus-dev (tomlplusplus-devel on rpm systems), or get its headers without root:\n"
        "  git clone --depth 1 --branch v3.4.0 https://github.com/marzer/tomlplusplus ~/tomlplusplus\n"
        "  export CMAKE_PREFIX_PATH=~/tomlplusplus    # and the same command again")
    endif()
    set(TOMLPLUSPLUS_INCLUDE_DIRS ${GRADWIRE_TOMLPLUSPLUS_DIR})
    set(TOMLPLUSPLUS_VERSION "of ${GRADWIRE_TOMLPLUSPLUS_DIR}")
  endif()
  pkg_check_modules(XXHASH QUIET IMPORTED_TARGET libxxhash)
  gradwire_required("${XXHASH_FOUND}" xxHash libxxhash-dev xxhash-devel)
elseif(NOT GRADWIRE_HIGHWAY STREQUAL "OFF")
  find_package(PkgConfig QUIET)
endif()
if(GRADWIRE_TESTS)
  find_package(GTest QUIET)
  gradwire_required("${GTest_FOUND}" GoogleTest "libgtest-dev libgmock-dev" "gtest-devel gmock-devel")
endif()
if(GRADWIRE_BENCH OR GRADWIRE_CLI)
  find_package(CLI11 QUIET)
  gradwire_required("${CLI11_FOUND}" CLI11 libcli11-dev cli11-devel)
endif()
if(GRADWIRE_BENCH)
  find_package(benchmark QUIET)
  gradwire_required("${benchmark_FOUND}" "Google Benchmark" libbenchmark-dev google-benchmark-devel)
endif()

set(found OFF)
if(NOT GRADWIRE_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS C CXX)
  set(found ${MPI_FOUND})
endif()
gradwire_optional(MPI "${found}" "no MPI transport; ranks as threads only" "libopenmpi-dev openmpi-bin")
if(GRADWIRE_HAVE_MPI)
  # This checks whether MPI can be asked at run time if it takes device memory: Open MPI in a header of its own, MPICH
  # in mpi.h.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
  check_cxx_source_compiles("#include <mpi.h>
    #if __has_include(<mpi-ext.h>)
    #include <mpi-ext.h>
    #endif
    int main() { return MPIX_Query_cuda_support(); }" GRADWIRE_HAVE_MPI_QUERY_CUDA)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

# A second MPI may be found for its own drop-in; the first may be the same.
set(found OFF)
if(NOT GRADWIRE_MPICH STREQUAL "OFF")
  find_path(GRADWIRE_MPICH_PARENT_DIR mpich/mpi.h)
  find_library(GRADWIRE_MPICH_LIBRARY mpich)
  find_program(GRADWIRE_MPICH_EXEC NAMES mpiexec.mpich mpiexec.hydra)
  if(GRADWIRE_MPICH_PARENT_DIR AND GRADWIRE_MPICH_LIBRARY AND GRADWIRE_MPICH_EXEC)
    set(found ON)
    set(GRADWIRE_MPICH_INCLUDE_DIR ${GRADWIRE_MPICH_PARENT_DIR}/mpich)
  endif()
endif()
gradwire_optional(MPICH "${found}" "no drop-in for MPICH jobs" "libmpich-dev mpich")

set(found OFF)
if(NOT GRADWIRE_HIGHWAY STREQUAL "OFF" AND PkgConfig_FOUND)
  pkg_check_modules(HWY QUIET libhwy>=1.0)  # only its headers
  set(found ${HWY_FOUND})
endif()
gradwire_optional(HIGHWAY "${found}" "scalar codecs, same bytes, slower" "libhwy-dev, 1.0 or later")

set(found OFF)
if(NOT GRADWIRE_GLOO STREQUAL "OFF")
  find_path(GLOO_INCLUDE_DIR gloo/allreduce.h)
  find_library(GLOO_LIBRARY gloo)
  if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
    set(found ON)
  endif()
endif()
gradwire_optional(GLOO "${found}" "no Gloo baseline in bench_all_reduce" "libgloo-dev")

# hwloc is loaded when it is needed: only its header is used here, and its own files at run time.
set(found "")
if(NOT GRADWIRE_HWLOC STREQUAL "OFF")
  find_path(GRADWIRE_HWLOC_INCLUDE_DIR hwloc.h)
  mark_as_advanced(GRADWIRE_HWLOC_INCLUDE_DIR)
  if(GRADWIRE_HWLOC_INCLUDE_DIR)
    set(found TRUE)
  endif()
endif()
gradwire_optional(HWLOC "${found}" "no topology of hosts, nothing is bound to memory nodes" "libhwloc-dev, 2.0 or later")

# Only the tool uses protobuf. It links the archive if that is complete in itself, so that the tool needs no library
# either; newer versions are split up. This does not use find_package(Protobuf), whose targets LibTorch's configuration
# would take for its own.
set(found OFF)
if(GRADWIRE_CLI AND NOT GRADWIRE_PROTOBUF STREQUAL "OFF" AND PkgConfig_FOUND)
  pkg_check_modules(PROTOBUF_LITE QUIET IMPORTED_TARGET protobuf-lite>=3.0)
  find_program(GRADWIRE_PROTOC protoc)
  find_library(GRADWIRE_PROTOBUF_ARCHIVE libprotobuf-lite.a)
  if(PROTOBUF_LITE_FOUND AND GRADWIRE_PROTOC)
    set(found ON)
    set(GRADWIRE_PROTOBUF_LIBRARIES PkgConfig::PROTOBUF_LITE)
    if(GRADWIRE_PROTOBUF_ARCHIVE AND PROTOBUF_LITE_VERSION VERSION_LESS 4)
      set(GRADWIRE_PROTOBUF_LIBRARIES ${GRADWIRE_PROTOBUF_ARCHIVE} Threads::Threads)
    endif()
  endif()
endif()
gradwire_optional(PROTOBUF "${found}" "no gradwire trace merge" "libprotobuf-dev protobuf-compiler")

# Metrics over HTTP use this in a library of its own. Its CMake package is not used, since it would build parts that we
# do not need.
set(found OFF)
if(GRADWIRE_SESSION AND NOT GRADWIRE_PROMETHEUS STREQUAL "OFF")
  find_path(GRADWIRE_PROMETHEUS_INCLUDE_DIR prometheus/exposer.h)
  find_path(GRADWIRE_CIVETWEB_INCLUDE_DIR CivetServer.h)
  find_library(GRADWIRE_CIVETWEB civetweb-cpp)
  find_library(GRADWIRE_PROMETHEUS_PULL prometheus-cpp-pull)
  find_library(GRADWIRE_PROMETHEUS_CORE prometheus-cpp-core)
  if(GRADWIRE_PROMETHEUS_INCLUDE_DIR AND GRADWIRE_PROMETHEUS_PULL AND GRADWIRE_PROMETHEUS_CORE AND GRADWIRE_CIVETWEB
     AND GRADWIRE_CIVETWEB_INCLUDE_DIR)
    set(found ON)
  endif()
endif()
gradwire_optional(PROMETHEUS "${found}" "no GRADWIRE_METRICS=http:..., files of metrics only" "prometheus-cpp-dev")

# Keys use this in a library of its own.
set(found OFF)
if(GRADWIRE_SESSION AND NOT GRADWIRE_OPENSSL STREQUAL "OFF")
  find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto SSL)
  set(found ${OpenSSL_FOUND})
endif()
gradwire_optional(OPENSSL "${found}" "no keys: what ranks send cannot be encrypted" "libssl-dev, 3.0 or later")

include(GradwireCuda)

set(found OFF)
if(NOT GRADWIRE_TORCH STREQUAL "OFF")
  set(flags "${CMAKE_CXX_FLAGS}")  # some versions of Torch add flags for everybody
  find_package(Torch 1.13 QUIET)  # version 1.8 of Ubuntu 22.04 ends the configuration: its files are elsewhere
  set(CMAKE_CXX_FLAGS "${flags}")
  if(Torch_FOUND OR TORCH_FOUND)
    set(found ON)
  endif()
endif()
gradwire_optional(TORCH "${found}" "no char_lm example, no gradwire/torch.hpp" "libtorch-dev, 1.13 or later")

# Torch for Python may be another one: that of the first interpreter that has it, asked once.
set(GRADWIRE_PYTHON "" CACHE FILEPATH "The Python whose Torch the backend gradwire_torch is for; empty: python3, then /usr/bin/python3")
set(found OFF)
if(GRADWIRE_SESSION AND NOT GRADWIRE_SANITIZE AND NOT GRADWIRE_TORCH_PYTHON STREQUAL "OFF")
  include(GradwireTorchPython)
endif()
gradwire_optional(TORCH_PYTHON "${found}" "no backend for torch.distributed" "python3-torch python3-dev pybind11-dev")

function(gradwire_print_summary)
  message(STATUS "gradwire ${PROJECT_VERSION} (${CMAKE_BUILD_TYPE})")
  foreach(line IN LISTS GRADWIRE_SUMMARY)
    message(STATUS "  ${line}")
  endforeach()
endfunction()
