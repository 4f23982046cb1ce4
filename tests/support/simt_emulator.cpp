#include "simt_emulator.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitizers.hpp"
#include "gradwire/error.hpp"
#include "simt_fibre.hpp"

#if GRADWIRE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace gradwire::emulator {
namespace {

void fibre_main();

// How long a block waits for blocks of other threads, which have no surroundings.
constexpr std::chrono::seconds kMostWait{30};

struct Fibre {
  Context context;
  std::unique_ptr<std::byte, StackDeleter> stack;
  bool started = false;        // the thread has reached the end of its loop, or is between two blocks or inside one
  void* fake_stack = nullptr;  // AddressSanitizer's
  bool done = false;
  const char* waits_at = nullptr;
};

// A place where threads wait for each other: a warp at its operations, a block at its barriers.
struct Barrier {
  std::uint64_t generation = 0;
  std::uint32_t arrived = 0;
  const char* what = nullptr;
  bool any = false;         // gathers the value of the current sync_or
  bool any_before = false;  // value of the last sync_or
};

struct Warp {
  Barrier barrier;
  alignas(16) std::byte slots[2][kLanes * kSlotBytes];  // of this operation and the previous one
};

// The block that one host thread emulates.
struct Machine {
  std::vector<Fibre> fibres;  // kept for their stacks
  std::vector<Warp> warps;
  Barrier barrier;
  Context host;
  void* host_fake_stack = nullptr;
  const void* host_stack = nullptr;
  std::size_t host_stack_bytes = 0;
  const std::function<void()>* body = nullptr;
  const char* kernel = nullptr;
  std::uint32_t threads = 0;
  std::uint32_t blocks = 0;
  std::uint32_t block = 0;
  std::uint32_t current = 0;
  std::uint32_t live = 0;
  std::uint32_t idle_switches = 0;  // switches since a thread made progress
  std::exception_ptr error;
  Order order = Order::ascending;
  std::vector<NotedLaunch>* launches = nullptr;
  std::vector<Launch>* held = nullptr;
  Surroundings* surroundings = nullptr;
  std::optional<std::chrono::steady_clock::time_point> waits_since;  // without surroundings: for other threads' blocks
};

Machine& machine() {
  thread_local Machine machine;
  return machine;
}

// Tells AddressSanitizer which stack runs.
void leave(void** fake_stack, const void* stack, std::size_t bytes) {
#if GRADWIRE_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#else
  static_cast<void>(fake_stack);
  static_cast<void>(stack);
  static_cast<void>(bytes);
#endif
}
// NOLINTNEXTLINE(readability-non-const-parameter): AddressSanitizer writes it
void arrive(void* fake_stack, const void** from_stack, std::size_t* from_bytes) {
#if GRADWIRE_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, from_stack, from_bytes);
#else
  static_cast<void>(fake_stack);
  static_cast<void>(from_stack);
  static_cast<void>(from_bytes);
#endif
}

// The host's stack is known once a fibre has been entered from it.
void arrive_from(Machine& m, void* fake_stack) {
  const bool from_host = m.host_stack == nullptr;
  arrive(fake_stack, from_host ? &m.host_stack : nullptr, from_host ? &m.host_stack_bytes : nullptr);
}

std::uint32_t next_live(const Machine& m) {
  std::uint32_t next = m.current;
  do {
    next = m.order == Order::ascending ? (next + 1) % m.threads : (next + m.threads - 1) % m.threads;
  } while (m.fibres[next].done);
  return next;
}

void switch_to(Machine& m, std::uint32_t next) {
  if (next == m.current) {
    return;
  }
  Fibre& from = m.fibres[m.current];
  Fibre& to = m.fibres[next];
  m.current = next;
  leave(&from.fake_stack, to.stack.get(), kStackBytes);
  from.context.switch_to(to.context);
  arrive_from(m, from.fake_stack);
}

// Returns when the next block starts.
void switch_to_host(Machine& m) {
  Fibre& from = m.fibres[m.current];
  leave(&from.fake_stack, m.host_stack, m.host_stack_bytes);
  from.context.switch_to(m.host);
  arrive_from(m, from.fake_stack);
}

[[noreturn]] void fail(const Machine& m, const std::string& what) {
  throw Error(ErrorCode::internal, std::string("kernel ") + m.kernel + ", block " + std::to_string(m.block) +
                                       ", thread " + std::to_string(m.current) + ": " + what);
}

std::string where_all_wait(const Machine& m) {
  std::string text;
  std::uint32_t first = 0;
  for (std::uint32_t i = 1; i <= m.threads; ++i) {
    const auto state = [&](std::uint32_t t) {
      return std::string(m.fibres[t].done ? "returned"
                                          : (m.fibres[t].waits_at == nullptr ? "runs" : m.fibres[t].waits_at));
    };
    if (i == m.threads || state(i) != state(first)) {
      text += (text.empty() ? "" : "; ") + std::to_string(first) + " to " + std::to_string(i - 1) + ": " + state(first);
      first = i;
    }
  }
  return text;
}

// Waits until `members` threads have reached this barrier.
void wait_at(Machine& m, Barrier& barrier, std::uint32_t members, const char* what) {
  if (barrier.arrived != 0 && std::strcmp(barrier.what, what) != 0) {
    fail(m, std::string("is at ") + what + " while others are at " + barrier.what);
  }
  barrier.what = what;
  m.idle_switches = 0;
  if (++barrier.arrived == members) {
    barrier.arrived = 0;
    barrier.any_before = barrier.any;
    barrier.any = false;
    ++barrier.generation;
    return;
  }
  const std::uint64_t generation = barrier.generation;
  m.fibres[m.current].waits_at = what;
  while (barrier.generation == generation) {
    if (++m.idle_switches > 2 * m.threads) {
      fail(m, "not all threads come to " + std::string(what) + ": " + where_all_wait(m));
    }
    switch_to(m, next_live(m));
  }
  m.fibres[m.current].waits_at = nullptr;
}

void fibre_main() {
  Machine& m = machine();
  arrive_from(m, nullptr);
  for (;;) {  // one turn per block
    try {
      (*m.body)();
    } catch (...) {
      m.error = std::current_exception();
    }
    m.fibres[m.current].done = true;
    m.idle_switches = 0;
    --m.live;
    if (m.error || m.live == 0) {  // not in the handler, which would stay open
      switch_to_host(m);
    } else {
      switch_to(m, next_live(m));
    }
  }
}

void run_fibres(Machine& m) {
  m.live = m.threads;
  m.barrier = {};
  m.idle_switches = 0;
  m.waits_since.reset();
  m.error = nullptr;
  m.host_stack = nullptr;
  for (Warp& warp : m.warps) {
    warp.barrier = {};
  }
  for (std::uint32_t i = 0; i < m.threads; ++i) {
    Fibre& fibre = m.fibres[i];
    fibre.done = false;
    fibre.waits_at = nullptr;
    if (!fibre.started) {
      fibre.started = true;
      fibre.fake_stack = nullptr;
#if GRADWIRE_ADDRESS_SANITIZER
      __asan_unpoison_memory_region(fibre.stack.get(), kStackBytes);  // frames of an abandoned fibre
#endif
      fibre.context.start_on(fibre.stack.get(), fibre_main);
    }
  }
  m.current = m.order == Order::ascending ? 0 : m.threads - 1;
  leave(&m.host_fake_stack, m.fibres[m.current].stack.get(), kStackBytes);
  m.host.switch_to(m.fibres[m.current].context);
  arrive(m.host_fake_stack, nullptr, nullptr);
  if (m.error) {
    for (Fibre& fibre : m.fibres) {  // the threads are where they waited
      fibre.started = false;
    }
    std::rethrow_exception(std::exchange(m.error, nullptr));
  }
}

}  // namespace

namespace {

struct Loaded {
  std::mutex mutex;
  std::set<const void*> kernels;
};
Loaded& loaded() {  // a function, because static objects of tests load kernels
  static Loaded instance;
  return instance;
}

}  // namespace

void note_loaded(const void* kernel) {
  const std::lock_guard lock(loaded().mutex);
  loaded().kernels.insert(kernel);
}

void check_loaded(const char* name, const void* kernel) {
  const std::lock_guard lock(loaded().mutex);
  if (!loaded().kernels.empty() && !loaded().kernels.contains(kernel)) {
    throw Error(ErrorCode::internal, std::string("kernel ") + name + " was not among those that load_kernels() loads");
  }
}

void set_order(Order order) { machine().order = order; }

LaunchNotes::LaunchNotes() { machine().launches = &launches_; }

LaunchNotes::~LaunchNotes() { machine().launches = nullptr; }

std::vector<std::string> LaunchNotes::kernels() const {
  std::vector<std::string> names;
  for (const NotedLaunch& launch : launches_) {
    names.push_back(launch.kernel);
  }
  return names;
}

void hold_launches(std::vector<Launch>* launches) { machine().held = launches; }

void set_surroundings(Surroundings* surroundings) { machine().surroundings = surroundings; }

void launch(const char* kernel, std::uint32_t blocks, std::uint32_t threads, void* stream, std::function<void()> body) {
  Machine& m = machine();
  if (m.launches != nullptr) {
    m.launches->push_back({kernel, blocks});
  } else if (m.held != nullptr) {
    m.held->push_back({kernel, blocks, threads, stream, std::move(body)});
  } else {
    run(kernel, blocks, threads, body);
  }
}

void run(const char* kernel, std::uint32_t blocks, std::uint32_t threads, const std::function<void()>& body) {
  for (std::uint32_t block = 0; block < blocks; ++block) {
    run_block(kernel, block, blocks, threads, body);
  }
}

void run_block(const char* kernel, std::uint32_t block, std::uint32_t blocks, std::uint32_t threads,
               const std::function<void()>& body) {
  Machine& m = machine();
  while (m.fibres.size() < threads) {
    m.fibres.emplace_back().stack.reset(static_cast<std::byte*>(::operator new (kStackBytes, std::align_val_t{64})));
  }
  m.warps.resize((threads + kLanes - 1) / kLanes);
  m.body = &body;
  m.kernel = kernel;
  m.threads = threads;
  m.blocks = blocks;
  m.block = block;
  run_fibres(m);
}

std::uint32_t thread() { return machine().current; }
std::uint32_t block() { return machine().block; }
std::uint32_t blocks() { return machine().blocks; }

void sync(const char* what) {
  Machine& m = machine();
  if (m.surroundings != nullptr && m.barrier.arrived == 0) {
    m.surroundings->give_way(false);
  }
  wait_at(m, m.barrier, m.threads, what);
}

// The other threads of the block go first, since others may wait for what they do.
void pause() {
  Machine& m = machine();
  m.idle_switches = 0;
  switch_to(m, next_live(m));
  if (m.surroundings != nullptr) {
    m.surroundings->give_way(true);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  m.waits_since = m.waits_since.value_or(now);
  if (now - *m.waits_since > kMostWait) {
    fail(m, "waits for other blocks, but they do not come");
  }
  std::this_thread::yield();
}

void release() {
  if (Surroundings* all = machine().surroundings; all != nullptr) {
    all->release();
  }
}

std::uint64_t nanoseconds() {
  Machine& m = machine();
  return m.surroundings != nullptr
             ? m.surroundings->nanoseconds()
             : static_cast<std::uint64_t>(
                   std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

bool sync_or(bool value) {
  Machine& m = machine();
  m.barrier.any = m.barrier.any || value;
  wait_at(m, m.barrier, m.threads, "sync_or");
  return m.barrier.any_before;
}

const std::byte* exchange_bytes(const char* what, const void* value, std::size_t bytes) {
  Machine& m = machine();
  const std::uint32_t index = m.current / kLanes;
  Warp& warp = m.warps[index];
  std::byte* slots = warp.slots[warp.barrier.generation % 2];
  std::memcpy(slots + m.current % kLanes * kSlotBytes, value, bytes);
  wait_at(m, warp.barrier, std::min(kLanes, m.threads - index * kLanes), what);
  return slots;
}

void check_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    fail(machine(), "an access of " + std::to_string(bytes) + " bytes at an address that is no multiple of it");
  }
}

void load_bytes(const void* from, void* value, std::size_t bytes) {
  check_aligned(from, bytes);
  Surroundings* all = machine().surroundings;
  if (all == nullptr || !all->load(from, value, bytes)) {
    std::memcpy(value, from, bytes);
  }
}

void store_bytes(void* to, const void* value, std::size_t bytes) {
  check_aligned(to, bytes);
  Surroundings* all = machine().surroundings;
  if (all == nullptr || !all->store(to, value, bytes)) {
    std::memcpy(to, value, bytes);
  }
}

}  // namespace gradwire::emulator
