#include "base/world_name.hpp"

#include <filesystem>

#include "base/mutex.hpp"

namespace gradwire {
namespace {

struct Named {
  Mutex mutex;
  std::string name GUARDED_BY(mutex);
};
Named& named() {  // never destroyed: MPI_Finalize may run in an atexit handler
  static auto& instance = *new Named;
  return instance;
}

}  // namespace

void name_world(const std::string& name) {
  const MutexLock lock(named().mutex);
  if (named().name.empty()) {
    named().name = name;
  }
}

std::string world_name() {
  const MutexLock lock(named().mutex);
  return named().name;
}

std::string with_world_name(const std::string& text) {
  const std::string name = world_name();
  return name.empty() ? text : text + "-" + name;
}

std::string file_with_world_name(const std::string& file) {
  const std::filesystem::path path(file);
  return path.parent_path() / (with_world_name(path.stem().string()) + path.extension().string());
}

}  // namespace gradwire
