// A device: streams of work that is done while the host waits, and events between them. Each piece of work is ordered
// behind what its stream, its events and the host's waits say, and behind nothing else: what meets without such an
// order is a race, in whatever order this machine happens to run it.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/ptx/machine.hpp"

namespace gradwire::ptx {

struct EventState {
  bool done = true;
  Clock clock;
  double milliseconds = 0;
};

struct Stream {
  std::uint32_t number = 0;
  bool waits_for_legacy = false;  // an ordinary stream and stream 0 wait for each other
  Clock clock;
  std::deque<std::function<bool()>> work;  // each returns whether it has ended
};

class Device {
 public:
  static Device& instance();

  std::recursive_mutex mutex;
  Memory memory;
  Order order;

  [[nodiscard]] Stream& stream(cudaStream_t handle);
  cudaStream_t add_stream(bool waits_for_legacy);
  void remove_stream(cudaStream_t handle);

  void launch(Stream& stream, Launch launch);
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes, bool host_waits);
  void fill(Stream& stream, void* to, int value, std::size_t bytes);
  void record(Stream& stream, const std::shared_ptr<EventState>& event);
  void wait(Stream& stream, const std::shared_ptr<EventState>& event);
  void call(Stream& stream, std::function<void()> function);

  /// Runs work until the condition holds; an error where nothing can go on.
  void run_until(const std::function<bool()>& condition);
  void synchronize(Stream& stream);
  void synchronize(EventState& event);
  void synchronize_all();
  /// Runs a little work, for a host that asks without waiting.
  void run_some();
  /// What the host knows to have ended.
  Clock& host() { return host_; }

  /// Notes a finding: it is printed, and all later calls fail.
  void note(const std::string& finding) noexcept;
  [[nodiscard]] bool failed() const { return findings_ != 0; }
  void summarize() noexcept;

 private:
  Device();
  bool step();
  std::uint32_t begin(Stream& stream, const std::string& name);
  void order_behind_legacy(Stream& stream);

  Settings settings_;
  Machine machine_;
  std::map<cudaStream_t, Stream> streams_;
  std::uint32_t numbers_ = 1;
  std::size_t turn_ = 0;
  Clock host_;
  std::map<std::string, std::uint64_t> launches_;
  std::uint64_t findings_ = 0;
};

}  // namespace gradwire::ptx
