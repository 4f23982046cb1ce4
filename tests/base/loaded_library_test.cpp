// Counts calls of dlopen, to test how often the file system is searched for a library that may never be loaded.
#include "base/loaded_library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>

namespace {
std::atomic<int> g_opened{0};
}  // namespace

extern "C" void* dlopen(const char* file, int mode) noexcept {
  ++g_opened;
  static const auto real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  return real(file, mode);
}

namespace gradwire::test {
namespace {

TEST(LoadedLibrary, IsNotSearchedForAtEachLook) {
  LoadedLibrary library("libno_process_has_this.so.9");
  EXPECT_EQ(library.handle(), nullptr);
  const int before = g_opened;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(library.handle(), nullptr);
  }
  EXPECT_EQ(g_opened, before);
}

TEST(LoadedLibrary, IsFoundOnceItWasLoaded) {
  LoadedLibrary library(GRADWIRE_LATE_LIBRARY);
  EXPECT_EQ(library.handle(), nullptr);
  void* loaded = dlopen(GRADWIRE_LATE_LIBRARY, RTLD_LAZY);
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(library.handle(), loaded);
  dlclose(loaded);
  EXPECT_EQ(library.handle(), loaded);
}

}  // namespace
}  // namespace gradwire::test
