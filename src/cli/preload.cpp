#include "cli/preload.hpp"

#include <sys/auxv.h>

#include <system_error>

#include "cli/build_info.hpp"
#include "gradwire/error.hpp"

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

std::filesystem::path this_program(const std::filesystem::path& link) {
  std::error_code problem;
  if (std::filesystem::path program = std::filesystem::read_symlink(link, problem); !problem) {
    return program;
  }
  // Without /proc this uses the name by which the kernel started this program, which may be the name of a link.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as a number
  const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (name != nullptr) {
    if (std::filesystem::path program = std::filesystem::canonical(name, problem); !problem) {
      return program;
    }
  }
  throw Error(ErrorCode::unsupported,
              "the folder of this program, beside which the libraries lie that are preloaded, is "
              "not known, since " +
                  link.string() + " cannot be read (" + problem.message() +
                  "); mount /proc, or start gradwire by its whole path");
}

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

std::filesystem::path find_helper(const std::filesystem::path& program, const std::string& name) {
  const std::filesystem::path prefix = program.parent_path().parent_path();
  const std::filesystem::path installed = prefix / kHelperFolder / name;
  const std::filesystem::path built = prefix / "libexec" / "gradwire" / name;
  return !std::filesystem::exists(installed) && std::filesystem::exists(built) ? built : installed;
}

}  // namespace gradwire::cli
