#include "export/http_library.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::metrics {
namespace {

constexpr const char* kName = "libgradwire_export.so";

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::unsupported,
              "metrics: GRADWIRE_METRICS=http:... needs " + std::string(kName) + ", " + why +
                  "; install the package gradwire-export, or build gradwire where prometheus-cpp-dev is installed, or "
                  "write file:DIRECTORY, which needs neither. The job goes on without");
}

// Where this code is: a library or a program.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&load_http_library), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  // A program that was found in PATH is known by the name that it was called by.
  return error ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path() : file.parent_path();
}

std::vector<std::string> places() {
  const std::filesystem::path folder = own_folder();
  std::vector<std::string> places;
  if (!folder.empty()) {
    // As a build and an installation lay them out; the second is that of programs, the third of a module for Python.
    for (const char* from_there : {".", "../lib", "../..", "../" GRADWIRE_LIBDIR}) {
      places.push_back((folder / from_there / kName).lexically_normal().string());
    }
  }
  places.emplace_back(kName);
  return places;
}

}  // namespace

const ExportTable& load_http_library(const std::string& file) {
  void* library = nullptr;
  std::string why;
  for (const std::string& place : file.empty() ? places() : std::vector<std::string>{file}) {
    std::error_code ignored;
    const bool by_name = place.find('/') == std::string::npos;
    if (!by_name && !std::filesystem::exists(place, ignored)) {
      continue;
    }
    // Its threads outlive whoever would close it.
    library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) {
      break;
    }
    const char* said = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    if (why.empty()) {               // of the first that is there
      why = said == nullptr ? place : said;
    }
  }
  if (library == nullptr) {
    fail("which cannot be loaded (" + (why.empty() ? file + ": no such file" : why) + ")");
  }
  void* found = ::dlsym(library, "gradwire_export_functions");
  if (found == nullptr) {
    fail("but the one that was found is another library");
  }
  const auto* table = reinterpret_cast<decltype(&gradwire_export_functions)>(found)();
  if (table->version != kExportVersion) {
    fail("but the one that was found has version " + std::to_string(table->version) + " where " +
         std::to_string(kExportVersion) + " is needed");
  }
  return *table;
}

}  // namespace gradwire::metrics
