// Messages over NCCL, on a communicator of our own, so that they do not mix with the job's, and aborting ours does not
// affect the job's.
#pragma once

#include <nccl.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.hpp"
#include "transport/device_messages.hpp"

namespace gradwire::transport {

/// "unhandled system error (ncclSystemError, 2)", and the last line that NCCL logged.
[[nodiscard]] std::string nccl_text(ncclResult_t result, ncclComm_t comm);
/// Throws with NCCL's text unless `result` is success: Error(invalid_argument) for mistakes of the caller, otherwise
/// Error(transport).
void nccl_check(ncclResult_t result, ncclComm_t comm, const std::string& doing);

class NcclMessages final : public DeviceMessages {
 public:
  /// Makes a child of the caller's communicator with the same ranks. Every rank calls it; it blocks until all have. The
  /// caller keeps `comm`. Error(invalid_argument) for a null communicator.
  [[nodiscard]] static std::unique_ptr<NcclMessages> over(ncclComm_t comm);
  /// Takes ownership of `comm`, which is destroyed at the end, or aborted.
  [[nodiscard]] static std::unique_ptr<NcclMessages> adopt(ncclComm_t comm);
  ~NcclMessages() override;

  /// The device that the communicator was made for.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Connects to every peer, by messages, by a sum of one number and by one of all of `scratch`. NCCL connects ranks
  /// and loads kernels at the first use of each of its algorithms; after this the first collective most likely blocks
  /// for no rank on the host and allocates no memory in a capture. `scratch` is device memory aligned to 4, more than
  /// world_size bytes; its content is undefined afterwards.
  void connect(std::span<std::byte> scratch, void* stream);

  [[nodiscard]] std::string name() const override { return "nccl"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] void* nccl_communicator() const noexcept override { return comm_; }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  [[nodiscard]] bool sums_in_nodes() const noexcept override { return true; }
  /// Makes a child of the communicator for the node, and uses it once, as connect() does.
  void join_node(int node, int place, std::span<std::byte> scratch, void* stream) override;
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest,
                   void* stream) override;
  void gather_in_node(void* all, std::uint64_t bytes, void* stream) override;
  void end_group() override;
  void poll() override;
  void abort(const Error& error) noexcept override;

 private:
  explicit NcclMessages(ncclComm_t comm);
  // Runs `body` between begin_group() and end_group(), and closes NCCL's group where it fails.
  template <class Body>
  void in_group(const Body& body);
  template <class Call>
  void call(Call&& enqueue, const std::string& doing);
  void check(ncclResult_t result, const std::string& doing) const;
  void throw_if_aborted() const;
  void throw_reason() const REQUIRES(mutex_);
  void enter();
  void leave() noexcept;
  [[nodiscard]] std::string peer_text(const char* what, std::size_t bytes, int peer) const;

  ncclComm_t comm_;
  ncclComm_t node_comm_ = nullptr;  // of the ranks of this rank's node; null before join_node()
  int place_ = 0;                   // of this rank there
  int places_ = 1;
  int rank_ = 0;
  int world_size_ = 1;
  int device_ = 0;
  mutable Mutex mutex_;  // not held during calls of NCCL
  CondVar left_;
  int inside_ GUARDED_BY(mutex_) = 0;               // number of calls and groups under way
  std::optional<Error> reason_ GUARDED_BY(mutex_);  // of the first abort
};

}  // namespace gradwire::transport
