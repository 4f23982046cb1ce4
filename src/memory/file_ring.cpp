// Requests by io_uring. It is used through its three system calls: a ring of one kind of request needs less code than
// loading liburing does, and no library that could be missing.
#include <cerrno>

#include "memory/file_requests.hpp"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/closed_in_children.hpp"
#endif

namespace gradwire::memory {

#if defined(IORING_FEAT_RW_CUR_POS) && defined(__NR_io_uring_setup)
namespace {

// NOLINTBEGIN(cppcoreguidelines-pro-type-vararg): syscall() has variable arguments

class Mapping {
 public:
  Mapping(int ring, std::size_t bytes, off_t offset)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset)) {
    if (valid()) {
      ::madvise(memory_, bytes_, MADV_DONTFORK);  // a child would post requests of its parent
    }
  }
  ~Mapping() {
    if (valid()) {
      ::munmap(memory_, bytes_);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] bool valid() const noexcept { return memory_ != MAP_FAILED; }
  template <typename T>
  [[nodiscard]] T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

class Ring final : public FileRequests {
 public:
  // `ring` belongs to the object from here on.
  Ring(int ring, const io_uring_params& parameters, int descriptor)
      : ring_(ring),
        descriptor_(descriptor),
        rings_(ring, bytes_of(parameters), IORING_OFF_SQ_RING),
        entries_(ring, parameters.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES) {
    static_cast<void>(close_in_children(ring_));
    if (!valid()) {
      return;
    }
    submitted_tail_ = rings_.at<unsigned>(parameters.sq_off.tail);
    submitted_mask_ = *rings_.at<unsigned>(parameters.sq_off.ring_mask);
    submitted_ = rings_.at<unsigned>(parameters.sq_off.array);
    ended_head_ = rings_.at<unsigned>(parameters.cq_off.head);
    ended_tail_ = rings_.at<unsigned>(parameters.cq_off.tail);
    ended_mask_ = *rings_.at<unsigned>(parameters.cq_off.ring_mask);
    ended_ = rings_.at<io_uring_cqe>(parameters.cq_off.cqes);
  }
  ~Ring() override {
    forget_in_children(ring_);
    ::close(ring_);
  }

  [[nodiscard]] bool valid() const noexcept { return rings_.valid() && entries_.valid(); }

  bool begin(const FileRequest& request) override {
    const unsigned tail = *submitted_tail_;  // only begin() changes it
    const unsigned at = tail & submitted_mask_;
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[at];
    entry = {};
    entry.opcode = request.writes ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = descriptor_;
    entry.off = request.offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(request.memory);
    entry.len = static_cast<unsigned>(std::min(request.bytes, kMostBytes));
    entry.user_data = request.slot;
    submitted_[at] = at;
    std::atomic_ref(*submitted_tail_).store(tail + 1, std::memory_order_release);
    while (enter(1, 0, 0) != 1) {
      if (errno != EINTR) {  // for want of memory, say: the caller makes the request itself
        std::atomic_ref(*submitted_tail_).store(tail, std::memory_order_release);
        return false;
      }
    }
    return true;
  }

  void collect(std::vector<FileResult>& ended, bool waits) override {
    for (;;) {
      unsigned head = *ended_head_;  // only collect() changes it
      const unsigned tail = std::atomic_ref(*ended_tail_).load(std::memory_order_acquire);
      if (head != tail) {
        for (; head != tail; ++head) {
          const io_uring_cqe& entry = ended_[head & ended_mask_];
          ended.push_back({static_cast<std::uint32_t>(entry.user_data), entry.res});
        }
        std::atomic_ref(*ended_head_).store(head, std::memory_order_release);
        return;
      }
      if (!waits) {
        return;
      }
      if (enter(0, 1, IORING_ENTER_GETEVENTS) < 0 && errno != EINTR) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // the ring fills without the call, too
      }
    }
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of one request; PageFile makes the rest

  [[nodiscard]] static std::size_t bytes_of(const io_uring_params& parameters) {
    return std::max(parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned),
                    parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe));
  }
  [[nodiscard]] long enter(unsigned begins, unsigned waits_for, unsigned flags) const {
    return ::syscall(__NR_io_uring_enter, ring_, begins, waits_for, flags, nullptr, 0);
  }

  int ring_;
  int descriptor_;
  Mapping rings_;
  Mapping entries_;
  unsigned* submitted_tail_ = nullptr;
  unsigned submitted_mask_ = 0;
  unsigned* submitted_ = nullptr;
  unsigned* ended_head_ = nullptr;
  unsigned* ended_tail_ = nullptr;
  unsigned ended_mask_ = 0;
  io_uring_cqe* ended_ = nullptr;
};

}  // namespace

std::unique_ptr<FileRequests> make_ring(int descriptor, std::uint32_t in_flight) {
  io_uring_params parameters{};
  const long ring = ::syscall(__NR_io_uring_setup, in_flight, &parameters);
  if (ring < 0) {
    return nullptr;
  }
  constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
  if ((parameters.features & kNeeded) != kNeeded) {
    ::close(static_cast<int>(ring));
    return nullptr;
  }
  auto made = std::make_unique<Ring>(static_cast<int>(ring), parameters, descriptor);
  return made->valid() ? std::move(made) : nullptr;
}

// NOLINTEND(cppcoreguidelines-pro-type-vararg)

#else

std::unique_ptr<FileRequests> make_ring(int /*descriptor*/, std::uint32_t /*in_flight*/) { return nullptr; }

#endif

}  // namespace gradwire::memory
