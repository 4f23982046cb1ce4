// A library that observes and is unloaded while its reader runs.
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "observe/collector.hpp"
#include "observe/record.hpp"

namespace {

using namespace gradwire::observe;  // NOLINT(google-build-using-namespace): a small program

class Writes final : public Sink {
 public:
  explicit Writes(const char* file) : file_(file) {}
  void take(const Round& round) override {
    if (round.last) {
      std::FILE* file = std::fopen(file_.c_str(), "w");
      std::fprintf(file, "%d", static_cast<int>(round.recorded));
      std::fclose(file);
    }
  }

 private:
  std::string file_;
};

}  // namespace

/// Writes the number of events to the file at the end of the process.
extern "C" __attribute__((visibility("default"))) void plugin_observe(const char* file) {
  add_sink(std::make_shared<Writes>(file), {.interval = std::chrono::milliseconds(1)});
}

/// Records an event on a thread that ends after `released` is set.
extern "C" __attribute__((visibility("default"))) void plugin_record(std::atomic<bool>* recorded,
                                                                     const std::atomic<bool>* released) {
  std::thread([=] {
    record({.kind = EventKind::send});
    *recorded = true;
    while (!*released) {
      std::this_thread::yield();
    }
  }).detach();
}
