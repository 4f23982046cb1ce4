// The transport of mpi_transport.hpp: its life in mpi_transport.cpp, or mpi_slot.cpp where it has a slot of a
// communicator that others share; its messages in mpi_messages.cpp, its sums in mpi_sums.cpp.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "transport/backoff.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_communicators.hpp"
#include "transport/mpi_requests.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/mpi_world.hpp"
#include "transport/operations.hpp"

namespace gradwire::transport {

class SlotNotices;

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, const MpiOptions& options);
  MpiTransport(const MpiSlot& slot, const MpiOptions& options);
  ~MpiTransport() override;

  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    const bool native = slot_ == nullptr;  // with a slot there is no communicator of just these ranks
    return {.native_all_reduce_f32 = native,
            .native_all_reduce_f64 = native,
            .all_reduce_in_call = native && !options_.some_may_end,
            .checksum_by_default = true,
            .any_thread = level_ >= MPI_THREAD_SERIALIZED,
            .device_memory = options_.device_memory,
            .receives_at_most = true,
            .most_lanes = native ? TransportCapabilities{}.most_lanes
                                 : static_cast<int>(slot_->lease->world().tags().most_lanes()),
            .emulation = {}};
  }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return nodes_; }
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }
  void post_all_reduce(Operation& operation, View data) override;
  void all_reduce(View data) override;
  bool progress(std::chrono::microseconds wait) override;
  bool cancel(Operation& operation) noexcept override;
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override;
  void abort(const Error& error) noexcept override;
  [[nodiscard]] bool is_faulty() const noexcept;
  void revoke() noexcept;
  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  using Clock = Backoff::Clock;

  static constexpr std::chrono::milliseconds kAnnounceLimit{500};
  // A sum is made by messages, not by MPI, up to this many bytes from all peers together and up to this many ranks.
  static constexpr std::uint64_t kSummedHereBytes = 16ULL << 10;
  static constexpr int kSummedHereRanks = 8;
  static constexpr std::uint64_t kSummedByTwoBytes = 64ULL << 10;  // for two ranks, where a ring sends as many bytes
  // Longer messages are not eager, and take three times as long: inside a node, and between two.
  static constexpr std::uint64_t kNearPiece = 3840;
  static constexpr std::uint64_t kFarPiece = 32ULL << 10;
  static constexpr int kSummandTag = 2;              // and the next few, on the communicator of the abort channel
  static constexpr std::uint64_t kHeadBytes = 2048;  // eager with every MPI, so that truncation is harmless

  [[nodiscard]] bool may_use_mpi() const noexcept;
  /// Below MPI_THREAD_SERIALIZED only one thread may call MPI. A transport with a slot is called inside the job's own
  /// calls of MPI, and so by a thread that may.
  [[nodiscard]] bool is_right_thread() const noexcept {
    return slot_ != nullptr || level_ >= MPI_THREAD_SERIALIZED || std::this_thread::get_id() == maker_;
  }
  void enter();
  void end_in_slot() noexcept;
  [[nodiscard]] bool slot_is_faulty() const noexcept;
  void look_at_silence(bool any);
  void throw_if_aborted();
  void announce() noexcept;

  MpiOperation& add(Operation& operation);
  void add_part(MpiOperation& request, std::uint64_t bytes, MPI_Request mpi_request);
  bool give_up(MpiOperation& request) noexcept;
  /// The rank of a peer in the communicator that carries messages.
  [[nodiscard]] int address_of(int peer) const noexcept {
    return slot_ == nullptr ? peer : slot_->ranks[static_cast<std::size_t>(peer)];
  }
  /// Calls post(request), and takes the operation back if that throws.
  template <class Post>
  void start(Operation& operation, Post post) {
    try {
      post(add(operation));
    } catch (...) {
      cancel(operation);
      throw;
    }
    backoff_.posted();
    posted_ = true;
  }
  /// Bytes of a longer message that its head carries.
  [[nodiscard]] std::uint64_t head_payload() const noexcept {
    return options_.device_memory ? 0 : kHeadBytes - sizeof(std::uint64_t);
  }
  void send_part(MpiOperation& request, const std::byte* data, std::uint64_t bytes, MpiCommunicators::Address to);
  void receive_part(MpiOperation& request, std::byte* data, std::uint64_t bytes, MpiCommunicators::Address from);
  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  void receive_bulk(int peer, Tag tag);
  void reuse(MpiOperation& request);

  [[nodiscard]] std::uint64_t summed_here_bytes() const noexcept;
  /// The ranks other than this one, in order.
  [[nodiscard]] int other_rank(std::uint64_t index) const noexcept {
    const int rank = static_cast<int>(index);
    return rank < rank_ ? rank : rank + 1;
  }
  void post_native_sum(MpiOperation& request);
  void post_sum_by_messages(MpiOperation& request);
  [[nodiscard]] std::uint64_t piece_bytes(int peer) const noexcept;
  [[nodiscard]] static int summand_tag(std::uint64_t bytes, std::uint64_t piece) noexcept;
  void receive_summand(MpiOperation& request, int peer, std::byte* to);
  void send_summand(MpiOperation& request, int peer);
  void check_summand(const MpiPart& part, const MPI_Status& status, int code) const;
  void add_up(const MpiOperation& request) const;

  bool test();
  [[nodiscard]] std::vector<int> awaited() const;
  bool complete(MpiPart part, const MPI_Status& status, int code);
  void check_received(MpiPart& part, const MPI_Status& status, int code) const;
  void take_head(MpiOperation& request, std::uint64_t bytes) const;

  MpiOptions options_;
  std::unique_ptr<MpiSlot> slot_;  // null: the communicators are its own
  std::uint32_t serial_;
  int rank_ = 0;
  int world_size_ = 1;
  std::vector<std::uint32_t> nodes_;
  int level_;
  std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<std::thread::id> last_user_ = std::this_thread::get_id();
  MpiCommunicators communicators_;
  std::unique_ptr<MpiNotices> notices_;
  MpiAbortChannel* abort_channel_ = nullptr;  // notices_, without a slot
  SlotNotices* slot_notices_ = nullptr;       // notices_, with one

  MpiRequests requests_;
  std::list<MpiOperation> pending_;
  std::list<MpiOperation> over_;  // ended operations, whose memory the next ones use
  bool leaked_ = false;           // MPI still holds an operation that was given up, or an answer may come
  bool mpi_holds_sum_ = false;    // a sum over all ranks is among the operations that MPI still holds
  Backoff backoff_;
  Clock::time_point heard_ = Clock::now();  // when something arrived, or this rank began to wait
  bool posted_ = false;                     // an operation was posted since then
  Counters counters_;
};

}  // namespace gradwire::transport
