// Runs kernels on the host: blocks one after the other, each CUDA thread as a fibre of the calling thread (in
// simt_streams.hpp blocks of several kernels run at once). Lanes of a
// warp wait at warp operations, threads of a block at barriers. If some do not arrive, or arrive at different ones,
// run() throws an Error(internal) that names the kernel, the threads and where they wait, while a GPU might hang.
// kernels/device/simt.hpp includes this file if the compiler is not nvcc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace gradwire::emulator {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::size_t kSlotBytes = 64;  // bytes of one lane in one exchange

/// The order in which threads take turns. A kernel that lacks a barrier may give right results in one of them.
enum class Order : std::uint8_t { ascending, descending };
void set_order(Order order);

/// Runs `body` once for each thread of each block. It passes on exceptions of `body`.
void run(const char* kernel, std::uint32_t blocks, std::uint32_t threads, const std::function<void()>& body);
/// The same for one block.
void run_block(const char* kernel, std::uint32_t block, std::uint32_t blocks, std::uint32_t threads,
               const std::function<void()>& body);

/// A kernel that was launched and has not run.
struct Launch {
  std::string kernel;
  std::uint32_t blocks;
  std::uint32_t threads;
  void* stream;
  std::function<void()> body;
};
/// Runs a kernel, or only notes it where hold_launches() or LaunchNotes say so.
void launch(const char* kernel, std::uint32_t blocks, std::uint32_t threads, void* stream, std::function<void()> body);
/// From here on this thread's kernels do not run, but are appended to `launches`. Null: they run again.
void hold_launches(std::vector<Launch>* launches);

/// What a block meets that runs beside others. All calls come from the thread that runs the block.
class Surroundings {
 public:
  Surroundings() = default;
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;
  virtual ~Surroundings() = default;
  /// Lets other blocks run. `waits`: this one can do nothing until they have.
  virtual void give_way(bool waits) = 0;
  /// Returns false for memory that no other block uses, which the caller then accesses itself.
  virtual bool store(void* to, const void* value, std::size_t bytes) = 0;
  virtual bool load(const void* from, void* value, std::size_t bytes) = 0;
  /// Makes all stores visible to other blocks.
  virtual void release() = 0;
  virtual std::uint64_t nanoseconds() = 0;
};
/// Those of the blocks that this thread runs from here on; null: there are no other blocks.
void set_surroundings(Surroundings* surroundings);

/// Of a thread in a loop that waits for other blocks: lets them run.
void pause();
void release();
[[nodiscard]] std::uint64_t nanoseconds();

/// A kernel that was to be launched.
struct NotedLaunch {
  std::string kernel;
  std::uint32_t blocks;
};
/// While it lives, this thread's kernels do not run; it notes them. One at a time.
class LaunchNotes {
 public:
  LaunchNotes();
  ~LaunchNotes();
  LaunchNotes(const LaunchNotes&) = delete;
  LaunchNotes& operator=(const LaunchNotes&) = delete;

  [[nodiscard]] const std::vector<NotedLaunch>& launches() const noexcept { return launches_; }
  [[nodiscard]] std::vector<std::string> kernels() const;

 private:
  std::vector<NotedLaunch> launches_;
};

/// Once any kernel was recorded as loaded, a launch of one that was not is an Error(internal).
void note_loaded(const void* kernel);
void check_loaded(const char* name, const void* kernel);

// Returns the index of the calling thread inside run().
[[nodiscard]] std::uint32_t thread();
[[nodiscard]] std::uint32_t block();
[[nodiscard]] std::uint32_t blocks();
[[nodiscard]] inline std::uint32_t lane() { return thread() % kLanes; }

void sync(const char* what);
[[nodiscard]] bool sync_or(bool value);

/// Gives `bytes` bytes to the other lanes of the warp and waits for theirs. Returns kLanes slots, valid until the next
/// call.
const std::byte* exchange_bytes(const char* what, const void* value, std::size_t bytes);

/// Returns the values of all lanes of the warp.
template <class T>
class Lanes {
 public:
  explicit Lanes(const std::byte* slots) : slots_(slots) {}
  T operator[](std::uint32_t lane) const {
    T value;
    std::memcpy(&value, slots_ + lane * kSlotBytes, sizeof value);
    return value;
  }

 private:
  const std::byte* slots_;
};

template <class T>
Lanes<T> exchange(const char* what, const T& value) {
  static_assert(sizeof(T) <= kSlotBytes && std::is_trivially_copyable_v<T>);
  return Lanes<T>(exchange_bytes(what, &value, sizeof value));
}

/// Throws Error(internal) if the address is no multiple of `bytes`: a GPU would end the job.
void check_aligned(const void* address, std::size_t bytes);
void load_bytes(const void* from, void* value, std::size_t bytes);
void store_bytes(void* to, const void* value, std::size_t bytes);

template <class T>
T aligned_load(const void* from) {
  T value;
  load_bytes(from, &value, sizeof value);
  return value;
}
template <class T>
void aligned_store(void* to, const T& value) {
  store_bytes(to, &value, sizeof value);
}

}  // namespace gradwire::emulator

namespace gradwire::kernels {
namespace emulator = gradwire::emulator;
}  // namespace gradwire::kernels
