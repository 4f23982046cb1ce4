#include "base/companion_library.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/sanitizers.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

// The library or program that contains this code, by the kernel's name: the loader knows a program by the word by which
// it was called, which may name another file here. Empty: not known.
std::filesystem::path own_file() {
  const auto here = reinterpret_cast<std::uintptr_t>(&load_companion);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const std::uintptr_t begin = std::strtoull(line.c_str(), &rest, 16);
    const std::uintptr_t end = *rest == '-' ? std::strtoull(rest + 1, nullptr, 16) : 0;
    if (const std::size_t path = line.find('/'); begin <= here && here < end && path != std::string::npos) {
      return line.substr(path);
    }
  }
  return {};
}

// Whether the file may be loaded: it runs as this process, so only the process's user, root and the owner of this code
// may have put it there.
bool may_be_loaded(const std::filesystem::path& file, const std::filesystem::path& code) {
  struct stat its {};
  struct stat folder {};
  struct stat mine {};
  if (::stat(file.c_str(), &its) != 0 || ::stat(file.parent_path().c_str(), &folder) != 0 ||
      ::stat(code.c_str(), &mine) != 0) {
    return false;
  }
  const auto known = [&](uid_t owner) { return owner == 0 || owner == ::geteuid() || owner == mine.st_uid; };
  const bool anybody = (its.st_mode & S_IWOTH) != 0 || (folder.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH;
  return known(its.st_uid) && known(folder.st_uid) && !anybody;
}

std::vector<std::string> places_of(const CompanionLibrary& library) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path code = own_file();
  std::vector<std::string> places;
  for (std::string& place : companion_places(library.file_name, code, code == program)) {
    if (may_be_loaded(place, code)) {
      places.push_back(std::move(place));
    }
  }
  places.emplace_back(library.file_name);
  return places;
}

}  // namespace

void refuse_companion(const CompanionLibrary& library, const std::string& why) {
  throw Error(ErrorCode::unsupported, std::string(library.needed) + " needs " + library.file_name + ", " + why + "; " +
                                          std::string(library.advice));
}

std::vector<std::string> companion_places(const std::string& file_name, const std::filesystem::path& code,
                                          bool program) {
  const std::filesystem::path folder = code.parent_path();
  if (folder.empty()) {
    return {};
  }
  std::vector<std::string> relative_folders{"."};
  if (program && folder.filename() == "bin") {
    relative_folders.insert(relative_folders.end(),
                            {"../" GRADWIRE_LIBDIR, "../lib"});  // in an installation, and in a build
  } else if (program && folder.filename() == "gradwire" && folder.parent_path().filename() == "libexec") {
    relative_folders.insert(relative_folders.end(),
                            {"../../" GRADWIRE_LIBDIR, "../../lib"});  // a program of the tool's
  } else if (!program && folder.filename() == "python" && folder.parent_path().filename() == "gradwire") {
    relative_folders.emplace_back("../..");  // the module for Python, in LIBDIR/gradwire/python
  }
  for (std::string& place : relative_folders) {
    place = (folder / place / file_name).lexically_normal().string();
  }
  return relative_folders;
}

void* load_companion(const CompanionLibrary& library, const std::string& file) {
  // It is never unloaded, since threads of it may outlive this code.
  const bool sanitized = GRADWIRE_ADDRESS_SANITIZER != 0 || GRADWIRE_THREAD_SANITIZER != 0;
  const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | (library.isolated && !sanitized ? RTLD_DEEPBIND : 0);
  void* loaded = nullptr;
  std::string why;
  for (const std::string& place : file.empty() ? places_of(library) : std::vector<std::string>{file}) {
    std::error_code ignored;
    const bool by_name = place.find('/') == std::string::npos;
    if (!by_name && !std::filesystem::exists(place, ignored)) {
      continue;
    }
    loaded = ::dlopen(place.c_str(), flags);
    if (loaded != nullptr) {
      break;
    }
    const char* said = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    if (why.empty()) {               // the reason of the first file that is there
      why = said == nullptr ? place : said;
    }
  }
  if (loaded == nullptr) {
    refuse_companion(library, "which cannot be loaded (" + (why.empty() ? file + ": no such file" : why) + ")");
  }
  void* function = ::dlsym(loaded, library.function);
  if (function == nullptr) {
    refuse_companion(library, "but the one that was found is another library");
  }
  return function;
}

}  // namespace gradwire
