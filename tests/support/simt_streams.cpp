#include "simt_streams.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::emulator {
namespace {

constexpr std::uint64_t kMostIdleWaits = 30'000;  // since something was released

// A thread that is kept for later runs: a block's fibres and their stacks belong to it.
class Helper {
 public:
  Helper() : thread_([this] { serve(); }) {}
  ~Helper() {
    task_ = nullptr;
    begin_.release();
    thread_.join();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  void start(std::function<void()> task) {
    task_ = std::move(task);
    begin_.release();
  }
  void wait() { end_.acquire(); }

 private:
  void serve() {
    for (begin_.acquire(); task_ != nullptr; begin_.acquire()) {
      task_();
      end_.release();
    }
  }
  std::function<void()> task_;
  std::binary_semaphore begin_{0};
  std::binary_semaphore end_{0};
  std::thread thread_;
};

Helper& helper(std::size_t number) {
  static std::vector<std::unique_ptr<Helper>> all;
  while (all.size() <= number) {
    all.push_back(std::make_unique<Helper>());
  }
  return *all[number];
}

// The stores of a block that no other block sees yet, in lines of 16 bytes.
class StoreBuffer {
 public:
  void store(std::uintptr_t at, const void* value, std::size_t bytes) {
    const std::uintptr_t base = at / kLine * kLine;
    const auto [found, is_new] = where_.try_emplace(base, lines_.size());
    if (is_new) {
      lines_.push_back({base});
    }
    Line& line = lines_[found->second];
    std::memcpy(line.byte.data() + (at - base), value, bytes);
    for (std::size_t i = at - base; i < at - base + bytes; ++i) {
      line.stored |= 1U << i;
    }
  }
  void load(std::uintptr_t at, void* value, std::size_t bytes) const {
    const std::uintptr_t base = at / kLine * kLine;
    const auto found = where_.find(base);
    if (found == where_.end()) {
      return;
    }
    const Line& line = lines_[found->second];
    for (std::size_t i = 0; i < bytes; ++i) {
      if ((line.stored >> (at - base + i) & 1U) != 0) {
        static_cast<std::byte*>(value)[i] = line.byte[at - base + i];
      }
    }
  }
  [[nodiscard]] std::size_t lines() const { return lines_.size(); }
  void drain(std::size_t number) {
    const Line& line = lines_[number];
    for (std::size_t i = 0; i < kLine; ++i) {
      if ((line.stored >> i & 1U) != 0) {
        reinterpret_cast<std::byte*>(line.base)[i] = line.byte[i];  // NOLINT(performance-no-int-to-ptr)
      }
    }
    where_.erase(line.base);
    if (number + 1 != lines_.size()) {
      lines_[number] = lines_.back();
      where_[lines_[number].base] = number;
    }
    lines_.pop_back();
  }
  void drain_all() {
    while (!lines_.empty()) {
      drain(lines_.size() - 1);
    }
  }

 private:
  static constexpr std::size_t kLine = 16;
  struct Line {
    std::uintptr_t base = 0;
    std::array<std::byte, kLine> byte{};
    std::uint32_t stored = 0;  // bits by byte
  };
  std::vector<Line> lines_;
  std::unordered_map<std::uintptr_t, std::size_t> where_;
};

struct Stopped {};  // another block has failed

// One run: a worker for each block that a stream has at once. One worker runs at a time, and hands over to the next.
class Worlds {
 public:
  Worlds(const std::vector<Launch>& launches, std::vector<SharedMemory>& shared, std::uint64_t& stored_by_several,
         const std::function<void(std::uint64_t)>& meanwhile, Schedule schedule, unsigned seed)
      : shared_(shared),
        stored_by_several_(stored_by_several),
        meanwhile_(meanwhile),
        schedule_(schedule),
        random_(seed),
        pick_(seed + 1) {
    std::vector<void*> keys;
    for (const Launch& launch : launches) {
      auto at = std::find(keys.begin(), keys.end(), launch.stream);
      if (at == keys.end()) {
        keys.push_back(launch.stream);
        queues_.emplace_back();
        at = keys.end() - 1;
      }
      Queue& queue = queues_[static_cast<std::size_t>(at - keys.begin())];
      queue.launches.push_back(&launch);
      queue.widest = std::max(queue.widest, launch.blocks);
    }
    for (Queue& queue : queues_) {
      for (std::uint32_t block = 0; block < queue.widest; ++block) {
        workers_.push_back(std::make_unique<Worker>(*this, queue, block, workers_.size()));
      }
    }
  }

  void run() {
    if (workers_.empty()) {
      return;
    }
    live_ = workers_.size();
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      helper(i).start([worker = workers_[i].get()] { worker->run(); });
    }
    next(workers_.size() - 1).turn.release();
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      helper(i).wait();
    }
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  struct Queue {
    std::vector<const Launch*> launches = {};
    std::uint32_t widest = 0;
    std::size_t at = 0;       // the kernel that runs
    std::uint32_t ended = 0;  // its blocks that have ended
  };

  class Worker final : public Surroundings {
   public:
    Worker(Worlds& all, Queue& queue, std::uint32_t block, std::size_t number)
        : all_(all), queue_(queue), block_(block), number_(number) {}

    std::binary_semaphore turn{0};
    bool done = false;

    void run() {
      turn.acquire();
      set_surroundings(this);
      try {
        run_kernels();
      } catch (const Stopped&) {  // NOLINT(bugprone-empty-catch): the error is kept where it happened
      } catch (...) {
        all_.stop(std::current_exception());
      }
      set_surroundings(nullptr);
      done = true;
      if (--all_.live_ > 0) {
        all_.next(number_).turn.release();
      }
    }

    void give_way(bool waits) override {
      const bool random = all_.schedule_ == Schedule::random;
      if (!waits && (!random || all_.random_() % 16 != 0)) {
        return;
      }
      for (unsigned i = random ? all_.random_() % 4 : 0; i > 0 && buffer_.lines() > 0; --i) {
        buffer_.drain(all_.random_() % buffer_.lines());
      }
      if (waits) {
        all_.count_wait();
      }
      Worker& next = all_.next(number_);
      if (&next != this) {
        next.turn.release();
        turn.acquire();
      }
      if (all_.error_) {
        throw Stopped{};
      }
    }
    bool store(void* to, const void* value, std::size_t bytes) override {
      SharedMemory* shared = all_.shared(to);
      if (shared != nullptr) {
        buffer_.store(reinterpret_cast<std::uintptr_t>(to), value, bytes);
        all_.note_store(*shared, reinterpret_cast<std::uintptr_t>(to) - shared->begin, bytes, number_ + 1);
      }
      return shared != nullptr;
    }
    bool load(const void* from, void* value, std::size_t bytes) override {
      const bool shared = all_.shared(from) != nullptr;
      if (shared) {
        std::memcpy(value, from, bytes);
        buffer_.load(reinterpret_cast<std::uintptr_t>(from), value, bytes);
      }
      return shared;
    }
    void release() override {
      buffer_.drain_all();
      all_.idle_waits_ = 0;
    }
    std::uint64_t nanoseconds() override { return 1000 * all_.waits_; }

   private:
    void run_kernels() {
      set_order(all_.schedule_ == Schedule::ascending                          ? Order::ascending
                : all_.schedule_ == Schedule::descending || (number_ % 2) == 0 ? Order::descending
                                                                               : Order::ascending);
      for (std::size_t i = 0; i < queue_.launches.size(); ++i) {
        while (queue_.at != i) {
          give_way(true);
        }
        const Launch& launch = *queue_.launches[i];
        if (block_ < launch.blocks) {
          run_block(launch.kernel.c_str(), block_, launch.blocks, launch.threads, launch.body);
          release();
          if (++queue_.ended == launch.blocks) {
            queue_.ended = 0;
            ++queue_.at;
          }
        }
      }
    }

    Worlds& all_;
    Queue& queue_;
    std::uint32_t block_;
    std::size_t number_;
    StoreBuffer buffer_;
  };

  [[nodiscard]] Worker& next(std::size_t after) {
    std::size_t at = after;
    do {
      at = schedule_ == Schedule::ascending    ? (at + 1) % workers_.size()
           : schedule_ == Schedule::descending ? (at + workers_.size() - 1) % workers_.size()
                                               : pick_() % workers_.size();
    } while (workers_[at]->done);
    return *workers_[at];
  }
  void count_wait() {
    ++waits_;
    if (meanwhile_) {
      meanwhile_(waits_);
    }
    if (++idle_waits_ > kMostIdleWaits) {
      throw Error(ErrorCode::internal, "all blocks of all kernels wait for each other");
    }
  }
  void stop(std::exception_ptr error) {
    if (!error_) {
      error_ = std::move(error);
    }
  }
  [[nodiscard]] SharedMemory* shared(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto found = std::find_if(shared_.begin(), shared_.end(),
                                    [at](const SharedMemory& memory) { return at >= memory.begin && at < memory.end; });
    return found == shared_.end() ? nullptr : &*found;
  }
  void note_store(SharedMemory& memory, std::size_t at, std::size_t bytes, std::size_t writer) {
    for (std::size_t i = at; i < at + bytes; ++i) {
      stored_by_several_ += memory.writer[i] != 0 && memory.writer[i] != writer ? 1 : 0;
      memory.writer[i] = static_cast<std::uint16_t>(writer);
    }
  }

  std::vector<SharedMemory>& shared_;
  std::uint64_t& stored_by_several_;
  const std::function<void(std::uint64_t)>& meanwhile_;
  Schedule schedule_;
  std::mt19937 random_;
  std::mt19937 pick_;
  std::vector<Queue> queues_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t live_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t idle_waits_ = 0;
  std::exception_ptr error_;
};

}  // namespace

void Streams::share(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  shared_.push_back({begin, begin + bytes, std::vector<std::uint16_t>(bytes)});
}

bool Streams::stored(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return std::any_of(shared_.begin(), shared_.end(), [at](const SharedMemory& memory) {
    return at >= memory.begin && at < memory.end && memory.writer[at - memory.begin] != 0;
  });
}

void Streams::run(Schedule schedule, unsigned seed) {
  const std::vector<Launch> launches = std::exchange(launches_, {});
  Worlds(launches, shared_, stored_by_several_, meanwhile, schedule, seed).run();
}

}  // namespace gradwire::emulator
