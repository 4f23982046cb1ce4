#include "tests/support/ptx/queues.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace gradwire::ptx {

Device& Device::instance() {
  static auto* const device = new Device;  // programs may use it until they have ended
  return *device;
}

Device::Device() : settings_(Settings::from_environment()), machine_(settings_, memory, order) {
  streams_[nullptr].waits_for_legacy = true;
  std::atexit([] { instance().summarize(); });
}

Stream& Device::stream(cudaStream_t handle) {
  if (handle == cudaStreamLegacy) {
    handle = nullptr;
  }
  const auto found = streams_.find(handle);
  if (found == streams_.end()) {
    throw Finding("a stream that does not exist, or was destroyed");
  }
  return found->second;
}

cudaStream_t Device::add_stream(bool waits_for_legacy) {
  const std::uint32_t number = numbers_++;
  auto* const handle = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1000} + number);
  Stream& made = streams_[handle];
  made.number = number;
  made.waits_for_legacy = waits_for_legacy;
  return handle;
}

void Device::remove_stream(cudaStream_t handle) {
  run_until([&] { return stream(handle).work.empty(); });
  streams_.erase(handle);
}

// The legacy stream and ordinary streams are ordered against each other.
void Device::order_behind_legacy(Stream& stream) {
  if (!stream.waits_for_legacy) {
    return;
  }
  for (auto& [handle, entry] : streams_) {
    Stream& other = entry;
    if (&other != &stream && other.waits_for_legacy && (other.number == 0 || stream.number == 0)) {
      run_until([&] { return other.work.empty(); });
      join(stream.clock, other.clock);
    }
  }
}

std::uint32_t Device::begin(Stream& stream, const std::string& name) {
  order_behind_legacy(stream);
  join(stream.clock, host_);
  return order.add_activity(stream.number, stream.clock, name);
}

void Device::launch(Stream& stream, Launch launch) {
  if (stream.capture != nullptr) {
    stream.capture->nodes.emplace_back([launch](Device& device, Stream& on) { device.launch(on, launch); });
    return;
  }
  const std::string name = launch.kernel->readable;
  ++launches_[name];
  const std::uint32_t activity = begin(stream, name);
  std::shared_ptr<Grid> grid = machine_.begin(std::move(launch), activity);
  stream.work.emplace_back([this, grid] { return machine_.run_slice(*grid); });
}

void Device::copy(Stream& stream, void* to, const void* from, std::size_t bytes, bool host_waits) {
  if (stream.capture != nullptr) {
    stream.capture->nodes.emplace_back([=](Device& device, Stream& on) { device.copy(on, to, from, bytes, false); });
    return;
  }
  const std::string name = "a copy";
  const std::uint32_t agent = order.add_agent(begin(stream, name), 0);
  // Memory that is not pinned is read before the call returns, and has been written when it returns.
  std::shared_ptr<std::vector<char>> staged;
  if (memory.find(reinterpret_cast<std::uint64_t>(from)) == nullptr) {
    staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  }
  stream.work.emplace_back([this, to, from, bytes, agent, staged] {
    if (staged == nullptr) {
      memory.note_copy(from, false, bytes, agent, order, "a copy");
    }
    memory.note_copy(to, true, bytes, agent, order, "a copy");
    if (staged == nullptr) {
      std::memmove(to, from, bytes);
      memory.copy_state(to, from, bytes);
    } else {  // something else may be at `from` by now
      std::memcpy(to, staged->data(), bytes);
    }
    return true;
  });
  if (host_waits || memory.find(reinterpret_cast<std::uint64_t>(to)) == nullptr) {
    synchronize(stream);
  }
}

void Device::fill(Stream& stream, void* to, int value, std::size_t bytes) {
  if (stream.capture != nullptr) {
    stream.capture->nodes.emplace_back([=](Device& device, Stream& on) { device.fill(on, to, value, bytes); });
    return;
  }
  const std::uint32_t agent = order.add_agent(begin(stream, "a fill"), 0);
  stream.work.emplace_back([this, to, value, bytes, agent] {
    memory.note_copy(to, true, bytes, agent, order, "a fill");
    std::memset(to, value, bytes);
    return true;
  });
}

void Device::enqueue(Stream& stream, const std::string& name, std::function<bool(Device&, std::uint32_t)> body) {
  if (stream.capture != nullptr) {
    stream.capture->nodes.emplace_back([=](Device& device, Stream& on) { device.enqueue(on, name, body); });
    return;
  }
  const std::uint32_t agent = order.add_agent(begin(stream, name), 0);
  others_help_ = true;
  stream.work.emplace_back([this, agent, body = std::move(body)] { return body(*this, agent); });
}

void Device::begin_capture(Stream& stream) { stream.capture = std::make_shared<Graph>(); }

std::shared_ptr<Graph> Device::end_capture(Stream& stream) {
  std::shared_ptr<Graph> graph = stream.capture;
  for (auto& [handle, other] : streams_) {
    if (other.capture == graph) {
      other.capture = nullptr;
    }
  }
  return graph;
}

void Device::replay(Stream& stream, const Graph& graph) {
  for (const auto& node : graph.nodes) {
    node(*this, stream);
  }
}

void Device::record(Stream& stream, const std::shared_ptr<EventState>& event) {
  if (stream.capture != nullptr) {
    event->captured = stream.capture;
    return;
  }
  begin(stream, "an event");
  event->done = false;
  event->clock = stream.clock;
  stream.work.emplace_back([event] {
    event->done = true;
    event->milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return true;
  });
}

void Device::wait(Stream& stream, const std::shared_ptr<EventState>& event) {
  if (event->captured != nullptr) {
    stream.capture = event->captured;
    return;
  }
  join(stream.clock, event->clock);
  stream.work.emplace_back([event] { return event->done; });
}

void Device::call(Stream& stream, std::function<void()> function) {
  if (stream.capture != nullptr) {
    throw Finding("unknown call: a capture of a host function");
  }
  begin(stream, "a host function");
  stream.work.emplace_back([function = std::move(function)] {
    function();
    return true;
  });
}

void Device::run_by_itself() {
  if (runs_by_itself_) {
    return;
  }
  runs_by_itself_ = true;
  std::thread([this] {
    for (;;) {
      const std::lock_guard lock(mutex);
      if (failed() || !guarded_step() || callers.load() != 0) {
        let_others();
      }
    }
  }).detach();
}

// NOLINTNEXTLINE(readability-non-const-parameter): it is stored to through an atomic_ref
void Device::write_word(Stream& stream, std::uint32_t* word, std::uint32_t value) {
  begin(stream, "a write of a word");
  run_by_itself();
  stream.work.emplace_back([word, value, this, clock = stream.clock] {
    join(host_, clock);  // a host thread that sees the word knows what was before it
    std::atomic_ref(*word).store(value, std::memory_order_release);
    return true;
  });
}

void Device::wait_for_word(Stream& stream, const std::uint32_t* word, std::uint32_t value) {
  begin(stream, "a wait for a word");
  run_by_itself();
  others_help_ = true;
  stream.work.emplace_back([word, value] {
    const std::uint32_t now = std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - value) >= 0;
  });
}

// Lets other threads have the device for a moment.
void Device::let_others() {
  mutex.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  mutex.lock();
}

// Does a part of the next stream's work; returns whether there was any that can go on.
bool Device::step() {
  std::vector<Stream*> busy;
  for (auto& [handle, stream] : streams_) {
    if (!stream.work.empty()) {
      busy.push_back(&stream);
    }
  }
  const std::size_t first = settings_.schedule == Schedule::random ? machine_.random()() : turn_++;
  for (std::size_t i = 0; i < busy.size(); ++i) {
    Stream& stream = *busy[(first + i) % busy.size()];
    const std::uint64_t before = machine_.progress();
    const bool ended = stream.work.front()();
    if (ended) {
      stream.work.pop_front();
    }
    if (ended || machine_.progress() != before) {
      progress_ = std::chrono::steady_clock::now();
      return true;
    }
  }
  return false;
}

void Device::run_until(const std::function<bool()>& condition) {
  constexpr std::uint32_t kTurn = 256;  // parts of work
  progress_ = std::chrono::steady_clock::now();
  std::uint32_t parts = 0;
  while (!condition() && !failed()) {
    if (step()) {
      if (++parts % kTurn == 0 && callers.load() != 0) {
        let_others();  // a grid that polls may wait for one that another thread has still to launch
      }
      continue;
    }
    // Other threads may store a word, or enqueue the other end of a message.
    const auto now = std::chrono::steady_clock::now();
    if (!others_help_ || now - progress_ > std::chrono::seconds(30)) {
      note("deadlock: streams wait for each other");
    }
    let_others();
  }
}

void Device::synchronize(Stream& stream) {
  if (stream.capture != nullptr) {
    throw Finding("a wait of the host for a stream that is being captured");
  }
  run_until([&] { return stream.work.empty(); });
  join(host_, stream.clock);
}

void Device::synchronize(EventState& event) {
  run_until([&] { return event.done; });
  join(host_, event.clock);
}

void Device::synchronize_all() {
  for (auto& [handle, stream] : streams_) {
    if (stream.capture == nullptr) {
      synchronize(stream);
    }
  }
}

void Device::run_some() {
  if (!failed()) {
    step();
  }
}

// For the thread, which has nobody to throw to.
bool Device::guarded_step() {
  try {
    return step();
  } catch (const std::exception& finding) {
    note(finding.what());
    return false;
  }
}

void Device::note(const std::string& finding) noexcept {
  ++findings_;
  std::fflush(stdout);
  std::fprintf(stderr, "ptx: %s\n", finding.c_str());
  for (auto& [handle, stream] : streams_) {
    stream.work.clear();
  }
}

std::uint64_t Device::launches(const std::string& part) const {
  std::uint64_t all = 0;
  for (const auto& [name, count] : launches_) {
    all += name.find(part) != std::string::npos ? count : 0;
  }
  return all;
}

void Device::summarize() noexcept {
  while (!failed() && !others_help_ && guarded_step()) {  // a GPU may have done this work, too
  }
  if (const char* const path = std::getenv("GRADWIRE_PTX_LAUNCHES"); path != nullptr) {
    std::ofstream file(path);
    for (const auto& [name, count] : launches_) {
      file << count << '\t' << name << '\n';
    }
  }
  std::fflush(stdout);
  constexpr const char* kNames[] = {"ascending", "descending", "random"};
  std::fprintf(stderr,
               "ptx: %llu launches of %zu kernels, %llu instructions of warps, at most %llu waits a thread, %s order, "
               "seed %llu, %llu findings\n",
               static_cast<unsigned long long>(launches("")), launches_.size(),
               static_cast<unsigned long long>(machine_.instructions()), static_cast<unsigned long long>(most_waits_),
               kNames[static_cast<std::size_t>(settings_.schedule)], static_cast<unsigned long long>(settings_.seed),
               static_cast<unsigned long long>(findings_));
  if (findings_ != 0) {
    std::fflush(nullptr);
    std::_Exit(3);  // a program may have overlooked the error
  }
}

}  // namespace gradwire::ptx
