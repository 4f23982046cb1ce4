// opener PLUGIN opens a library that uses NCCL, for itself only, and runs it.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  auto* run = plugin == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(plugin, "plugin_run"));
  if (run == nullptr) {
    std::fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "opener PLUGIN");
    return 2;
  }
  return run();
}
