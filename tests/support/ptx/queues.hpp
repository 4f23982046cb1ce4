// A device: streams of work that is done while the host waits, and events between them. Each piece of work is ordered
// behind what its stream, its events and the host's waits say, and behind nothing else: what meets without such an
// order is a race, in whatever order this machine happens to run it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/ptx/machine.hpp"

namespace gradwire::ptx {

struct Stream;
class Device;

/// Captured work, in the order in which it was captured. A replay runs it in this order on one stream: a legal order,
/// which hides a missing wait inside of the graph.
struct Graph {
  std::vector<std::function<void(Device& device, Stream& stream)>> nodes;
};

struct EventState {
  bool done = true;
  std::shared_ptr<Graph> captured;  // it was recorded during a capture
  Clock clock;
  double milliseconds = 0;
};

struct Stream {
  std::uint32_t number = 0;
  bool waits_for_legacy = false;  // an ordinary stream and stream 0 wait for each other
  Clock clock;
  std::deque<std::function<bool()>> work;  // each returns whether it has ended
  std::shared_ptr<Graph> capture;          // not null: work goes there
};

class Device {
 public:
  static Device& instance();

  std::recursive_mutex mutex;
  std::atomic<int> callers{0};  // that wait for the mutex: streams' own thread lets them in
  Memory memory;
  Order order;

  [[nodiscard]] Stream& stream(cudaStream_t handle);
  cudaStream_t add_stream(bool waits_for_legacy);
  void remove_stream(cudaStream_t handle);

  void launch(Stream& stream, Launch launch);
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes, bool host_waits);
  void fill(Stream& stream, void* to, int value, std::size_t bytes);
  /// Any other work; `body` returns whether it has ended, and is called again until then.
  void enqueue(Stream& stream, const std::string& name, std::function<bool(Device& device, std::uint32_t agent)> body);
  void record(Stream& stream, const std::shared_ptr<EventState>& event);
  void wait(Stream& stream, const std::shared_ptr<EventState>& event);
  void call(Stream& stream, std::function<void()> function);
  // Captures: work of the stream, and of streams that wait for its events, is kept and not done.
  void begin_capture(Stream& stream);
  /// Ends the capture of all streams that joined it.
  std::shared_ptr<Graph> end_capture(Stream& stream);
  void replay(Stream& stream, const Graph& graph);
  /// Makes a stream store a word of pinned memory, or wait until it is at least `value` (as a difference). A thread
  /// then does streams' work by itself, since hosts look at such words without calling anything.
  void write_word(Stream& stream, std::uint32_t* word, std::uint32_t value);
  void wait_for_word(Stream& stream, const std::uint32_t* word, std::uint32_t value);

  /// Other threads may end a wait, so that one without progress is no error at once.
  void expect_others() { others_help_ = true; }
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
  /// Returns how often kernels were launched whose names contain `part`.
  [[nodiscard]] std::uint64_t launches(const std::string& part) const;
  /// Notes how many waits for events one thread has made.
  void count_waits(std::uint64_t waits) { most_waits_ = std::max(most_waits_, waits); }

 private:
  Device();
  bool step();
  bool guarded_step();
  void let_others();
  void run_by_itself();
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
  std::uint64_t most_waits_ = 0;
  bool runs_by_itself_ = false;
  bool others_help_ = false;  // work may wait for what another thread has still to do
  std::chrono::steady_clock::time_point progress_;
};

/// Runs a call of the program's, body(device), under the lock of the device. Returns its result, or `failed` behind a
/// finding: all calls then fail.
template <class Result, class Body>
Result guarded_call(Result failed, Body&& body) {
  Device& device = Device::instance();
  ++device.callers;
  const std::lock_guard lock(device.mutex);
  --device.callers;
  if (device.failed()) {
    return failed;
  }
  try {
    return body(device);
  } catch (const Finding& finding) {
    device.note(finding.what());
  } catch (const std::exception& error) {
    device.note(std::string("the interpreter failed: ") + error.what());
  }
  return failed;
}

}  // namespace gradwire::ptx
