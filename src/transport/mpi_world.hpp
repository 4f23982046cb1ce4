// The one private communicator of a drop-in, with all ranks of MPI_COMM_WORLD. It carries all traffic of the drop-in
// for the job's communicators: messages under the tags of the communicator's slot (mpi_tags.hpp), and notices.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/transport.hpp"
#include "transport/mpi_tags.hpp"
#include "transport/mpi_transport.hpp"

namespace gradwire::transport {

/// A communicator's number: (rank of its rank 0 in MPI_COMM_WORLD, how many communicators that rank had numbered
/// before). It is never given twice in a job.
using CommNumber = std::uint64_t;

/// Receives the notices of one communicator. Called under the lock of the MpiWorld.
class NoticeListener {
 public:
  NoticeListener() = default;
  NoticeListener(const NoticeListener&) = delete;
  NoticeListener& operator=(const NoticeListener&) = delete;
  virtual ~NoticeListener() = default;
  /// A notice has arrived; `from` is a rank in MPI_COMM_WORLD.
  virtual void hear(int from, std::span<const char> bytes) noexcept = 0;
  /// A rank of MPI_COMM_WORLD has ended; called only where MPI goes on then.
  virtual void hear_of_end(int rank) noexcept = 0;
};

class MpiWorld {
 public:
  /// Collective over MPI_COMM_WORLD; called in MPI_Init, on the job's thread.
  explicit MpiWorld(std::chrono::milliseconds timeout);
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  /// Leaves the communicator to MPI where end() was not called.
  ~MpiWorld();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
  [[nodiscard]] const TagPlan& tags() const noexcept { return tags_; }
  [[nodiscard]] SlotTable& slots() noexcept { return slots_; }
  /// The node of each rank of MPI_COMM_WORLD.
  [[nodiscard]] const std::vector<std::uint32_t>& nodes() const noexcept { return nodes_; }

  /// From now on `listener` gets the notices for `number`, with those that came before. Any thread may call this.
  void listen(CommNumber number, NoticeListener& listener);
  void stop_listening(CommNumber number) noexcept;
  /// Reads the notices that have arrived. Any thread that may call MPI; returns at once where another thread does it.
  void poll() noexcept;
  /// Sends a notice for `number` to ranks of MPI_COMM_WORLD, and drives the messages for at most `limit`. Messages that
  /// are not sent by then are left to MPI.
  void notify(CommNumber number, std::span<const int> ranks, std::span<const char> bytes,
              std::chrono::milliseconds limit) const noexcept;

  /// Called in MPI_Finalize. Collective; nothing of this object may be used afterwards.
  void end() noexcept;

 private:
  static constexpr std::size_t kBytes = 1024;
  static constexpr std::size_t kMostUnheard = 4096;  // notices of communicators that this rank does not know yet

  void post() REQUIRES(mutex_);
  void take(const MPI_Status& status) noexcept REQUIRES(mutex_);
  void note_ends() noexcept REQUIRES(mutex_);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  TagPlan tags_;
  SlotTable slots_;
  std::vector<std::uint32_t> nodes_;

  struct Notice {
    int from;
    std::vector<char> bytes;
  };
  Mutex mutex_;
  std::map<CommNumber, NoticeListener*> listeners_ GUARDED_BY(mutex_);
  std::multimap<CommNumber, Notice> undelivered_notices_ GUARDED_BY(mutex_);
  std::set<int> ended_ GUARDED_BY(mutex_);
  // On the heap, so that it can be left to MPI, which may write there after this object has gone.
  std::unique_ptr<std::array<char, kBytes>> incoming_ GUARDED_BY(mutex_) = std::make_unique<std::array<char, kBytes>>();
  MPI_Request request_ GUARDED_BY(mutex_) = MPI_REQUEST_NULL;
};

/// A slot that a communicator has. Its end returns the slot, unless messages under its tags may still be on their way.
class SlotLease {
 public:
  SlotLease(std::shared_ptr<MpiWorld> world, unsigned slot) : world_(std::move(world)), slot_(slot) {}
  SlotLease(const SlotLease&) = delete;
  SlotLease& operator=(const SlotLease&) = delete;
  ~SlotLease() {
    if (!spoiled_) {
      world_->slots().release(slot_);
    }
  }
  [[nodiscard]] MpiWorld& world() const noexcept { return *world_; }
  [[nodiscard]] unsigned slot() const noexcept { return slot_; }
  void spoil() noexcept { spoiled_ = true; }

 private:
  std::shared_ptr<MpiWorld> world_;
  unsigned slot_;
  bool spoiled_ = false;
};

/// One communicator of the job, as its transport needs it.
struct MpiSlot {
  std::shared_ptr<SlotLease> lease;
  CommNumber number = 0;
  MPI_Comm comm = MPI_COMM_NULL;  ///< The job's own: asked whether its ranks have ended.
  std::vector<int> ranks;         ///< Its ranks, as ranks of MPI_COMM_WORLD.
};

/// A transport between the ranks of one of the job's communicators. The call is not collective, and makes no
/// communicator. Any thread whose calls MPI's thread level allows may use the transport, one at a time.
[[nodiscard]] std::shared_ptr<Transport> make_mpi(const MpiSlot& slot, const MpiOptions& options);

/// Ends all use of the communicator's transport on every rank by an Error, after the communicator was revoked or a rank
/// has ended: the library's own call will then report that. Any thread that may call MPI.
void tell_faulty(const MpiSlot& slot) noexcept;

}  // namespace gradwire::transport
