#include "cli/preload.hpp"

#include "cli/build_info.hpp"

namespace gradwire::cli {

std::string_view to_string(Library library) noexcept {
  switch (library) {
    case Library::open_mpi: return "Open MPI";
    case Library::mpich: return "MPICH";
    case Library::nccl: return "NCCL";
  }
  return "unknown";
}

std::string preload_name(Library library) {
  switch (library) {
    case Library::open_mpi: return "libgradwire_mpi.so";
    case Library::mpich: return "libgradwire_mpich.so";
    case Library::nccl: return "libgradwire_nccl.so";
  }
  return "";
}

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::vector<std::filesystem::path> preload_folders(const std::filesystem::path& program) {
  const std::filesystem::path prefix = program.parent_path().parent_path();
  std::vector<std::filesystem::path> folders{prefix / "lib"};
  if (prefix / kLibraryFolder != folders.front()) {
    folders.push_back(prefix / kLibraryFolder);
  }
  return folders;
}

std::optional<std::filesystem::path> find_preload(const std::filesystem::path& program, const std::string& name) {
  for (const std::filesystem::path& folder : preload_folders(program)) {
    const std::filesystem::path file = folder / name;
    if (std::filesystem::exists(file)) {
      return file;
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::cli
