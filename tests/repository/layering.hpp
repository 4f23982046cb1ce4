// The layers of the repository as a table, and the check of one file's #include lines against it: which module may
// include which, and where headers of outside libraries may appear.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::repository {

/// The top of the source tree.
inline const std::filesystem::path kRepository = GRADWIRE_SOURCE_DIR;

/// A module: its folder (src/<name>/, or a folder of the top level), the modules directly below it (all modules further
/// below may be included too), and its headers in include/gradwire/, without ".hpp".
struct Layer {
  std::string_view name;
  std::vector<std::string_view> below;
  std::vector<std::string_view> public_headers;
};

inline const std::vector<Layer> kLayers = {
    {"base", {}, {"dtype", "error", "step", "version"}},
    {"observe", {"base"}, {"statistics", "without_watch"}},
    {"watch", {"observe"}, {}},
    {"record", {"base"}, {}},
    {"memory", {"base"}, {}},
    {"wire", {"memory"}, {}},
    {"security", {"wire"}, {}},
    {"membership", {"wire"}, {}},
    {"kernels", {"wire"}, {}},
    {"codec", {"kernels", "memory", "wire"}, {"codec_spec"}},
    {"transport", {"memory", "security"}, {"transport", "link", "threading", "mpi_transport", "processes"}},
    {"emulation", {"transport"}, {"emulation"}},
    {"exchange", {"codec", "transport", "memory", "observe"}, {"reduction", "communicator"}},
    {"policy", {"exchange"}, {"policy"}},
    {"plan", {"policy"}, {}},
    {"choice", {"plan"}, {}},
    {"table", {"codec", "transport", "memory", "observe"}, {"table"}},
    {"session",
     {"choice", "table", "record"},
     {"session", "optimizer", "gradwire", "tables", "mpi", "torch", "cuda", "nccl"}},
    {"elastic", {"session", "membership"}, {}},
    {"api", {"session"}, {}},
    {"drop_in", {"choice", "record"}, {}},
    {"plugins", {"drop_in", "session"}, {}},
    {"export_http", {"watch"}, {}},
    {"security_openssl", {"security"}, {}},
    {"plot", {}, {}},
    {"cli", {"watch", "choice", "plot", "record"}, {}},
};

/// The folders of src/session in the same way, from the lowest on. A folder of `parts` holds one part, and includes no
/// other one.
inline const std::vector<Layer> kSessionFolders = {
    {"logging", {}, {}},
    {"optimizer", {}, {}},
    {"state", {}, {}},
    {"step", {"state"}, {}},
    {"runner", {"step"}, {}},
    {"host", {"runner"}, {}},
    {"device", {"runner"}, {}},
    {"tensors", {"runner"}, {}},
    {"part", {"tensors"}, {}},
    {"parts", {"part", "logging"}, {}},
    {"engine", {"part", "logging"}, {}},
    {"calls", {"engine", "parts", "host"}, {}},
};

/// Headers of other libraries: globs of the included headers, and globs of the files that may include them.
struct OutsideLibrary {
  std::string_view name;
  std::vector<std::string_view> headers;
  std::vector<std::string_view> files;
};

inline const std::vector<std::string_view> kDeviceFiles = {"kernels/*",
                                                           "src/transport/nccl*",
                                                           "src/exchange/stream/stream_cuda*",
                                                           "src/exchange/stream/stream_nccl*",
                                                           "src/memory/cuda*",
                                                           "plugins/*",
                                                           "include/gradwire/cuda.hpp",
                                                           "include/gradwire/nccl.hpp",
                                                           "include/gradwire/replace/nccl.h"};

inline const std::vector<OutsideLibrary> kOutsideLibraries = {
    {"MPI",
     {"mpi.h", "mpi-ext.h", "mpi/*"},
     {"src/transport/mpi*", "plugins/*", "include/gradwire/mpi.hpp", "include/gradwire/mpi_transport.hpp",
      "include/gradwire/mpi.h", "include/gradwire/replace/mpi.h"}},
    {"CUDA", {"cuda*", "cub/*", "thrust/*", "cooperative_groups*", "nvtx3/*"}, kDeviceFiles},
    {"NCCL", {"nccl*"}, kDeviceFiles},
    {"Torch", {"torch/*", "ATen/*", "c10/*"}, {"include/gradwire/torch.hpp", "plugins/torch_c10d/*"}},
    {"Python", {"Python.h", "pybind11/*"}, {"plugins/torch_c10d/*"}},
    {"the SIMT emulator of the tests", {"simt_emulator.hpp"}, {"kernels/device/simt.hpp"}},
    {"Highway", {"hwy/*"}, {"src/wire/*", "src/codec/*", "kernels/*"}},
    {"toml++", {"toml++/*"}, {"src/policy/*", "src/cli/model_file*"}},
    {"xxHash", {"xxhash.h"}, {"src/memory/page_file*", "src/plan/*", "src/session/*"}},
    {"spdlog", {"spdlog/*"}, {"src/session/*"}},
    {"nlohmann-json",
     {"nlohmann/*"},
     {"src/session/*", "src/drop_in/*", "src/cli/*", "src/record/*", "src/watch/page/*", "src/watch/timeline/*",
      "plugins/mpi_doctor/*"}},
    {"protobuf", {"google/protobuf/*", "*.pb.h"}, {"src/watch/timeline/trace_file*"}},
    {"CLI11", {"CLI/*"}, {"src/cli/*"}},
    {"the C library", {"stddef.h", "stdint.h"}, {"include/gradwire/*.h"}},
    {"the processor", {"*intrin.h", "cpuid.h"}, {"src/*", "kernels/*"}},
    {"AddressSanitizer", {"sanitizer/asan_interface.h"}, {"src/memory/*", "src/session/*"}},
    {"POSIX",
     {"dlfcn.h", "unistd.h", "pthread.h", "semaphore.h", "sched.h", "sys/*", "time.h", "spawn.h", "fcntl.h", "elf.h",
      "link.h", "termios.h", "dirent.h", "poll.h"},
     {"src/*", "plugins/*"}},
    {"the network namespaces of Linux", {"linux/capability.h"}, {"src/cli/emulated_link.cpp"}},
    {"hwloc", {"hwloc.h"}, {"src/memory/topology*"}},
    {"io_uring of Linux", {"linux/io_uring.h"}, {"src/memory/file_ring*"}},
    {"memory policies of Linux", {"linux/mempolicy.h"}, {"src/memory/placement*"}},
    {"prometheus-cpp", {"prometheus/*", "CivetServer.h"}, {"plugins/export_http/*"}},
    {"OpenSSL", {"openssl/*"}, {"plugins/security_openssl/*"}},
    {"sockets",
     {"arpa/inet.h", "ifaddrs.h", "net/if.h", "netdb.h", "netinet/*"},
     {"src/transport/tcp/*", "src/watch/live/fetch*", "plugins/export_http/*"}},
};

/// Returns the problems with the #include lines of a file; empty if there are none. `path` is relative to the
/// repository.
[[nodiscard]] std::vector<std::string> find_violations(const std::string& path, std::string_view text);

/// Does the same for the folders inside src/session, where `path` is.
[[nodiscard]] std::vector<std::string> find_session_violations(const std::string& path, std::string_view text);

/// Returns the files that the table covers: C++ and CUDA below include/, src/, kernels/ and plugins/, relative to
/// `repository`.
[[nodiscard]] std::vector<std::string> library_files(const std::filesystem::path& repository);

[[nodiscard]] std::string read_file(const std::filesystem::path& file);

}  // namespace gradwire::repository
