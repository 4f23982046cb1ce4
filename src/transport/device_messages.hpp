// Messages between devices, which are enqueued on a stream and never block. A StreamBackend over CUDA sends with them.
// Implementations: NCCL, and MPI with device tensors. Streams are cudaStream_t, memory is the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport {

/// One rank's end. One thread at a time, except for abort().
class DeviceMessages {
 public:
  DeviceMessages() = default;
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;
  virtual ~DeviceMessages() = default;

  /// "nccl", "mpi with staging"
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;
  /// Returns NCCL's communicator, an ncclComm_t, by which these messages travel; null: they travel by something else.
  [[nodiscard]] virtual void* nccl_communicator() const noexcept { return nullptr; }

  /// Messages that are enqueued between these two calls are one operation that cannot deadlock. Messages between two
  /// ranks match by their order and have the same size at both ends. All messages of a group are on one stream.
  virtual void begin_group() = 0;
  virtual void send(std::span<const std::byte> bytes, int peer, void* stream) = 0;
  virtual void receive(std::span<std::byte> bytes, int peer, void* stream) = 0;
  /// Sums over all ranks in place, in the library's own order. It needs a group of its own.
  virtual void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) = 0;

  /// Returns whether this library sums inside nodes. Where it does not, the next three functions throw
  /// Error(unsupported).
  [[nodiscard]] virtual bool sums_in_nodes() const noexcept { return false; }
  /// Makes this rank one of the ranks of a node, which have the places 0, 1, ... there. Every rank calls it, nodes have
  /// equally many ranks, and it blocks until all have called it. `scratch` is device memory aligned to 4, whose content
  /// is undefined once `stream` has come so far.
  virtual void join_node(int /*node*/, int /*place*/, std::span<std::byte> /*scratch*/, void* /*stream*/) {
    no_nodes();
  }
  /// Sums over the ranks of the node, in the library's own order. Place p gets elements [p * each, (p + 1) * each) of
  /// `from`, and the last place gets `rest` elements more. This call and gather_in_node() each need a group of their
  /// own, and may have another stream than messages.
  virtual void sum_in_node(const void* /*from*/, void* /*to*/, DType /*dtype*/, std::uint64_t /*each*/,
                           std::uint64_t /*rest*/, void* /*stream*/) {
    no_nodes();
  }
  /// Place p of the node sends bytes [p * bytes, (p + 1) * bytes) of `all`, which all others receive there.
  virtual void gather_in_node(void* /*all*/, std::uint64_t /*bytes*/, void* /*stream*/) { no_nodes(); }
  virtual void end_group() = 0;

  /// Throws an error that has happened since, or Error(aborted) after abort(). Never blocks.
  virtual void poll() = 0;
  /// Ends messages under way on this rank, and tells the other ranks where that is possible. The first abort wins. Any
  /// thread, any time.
  virtual void abort(const Error& error) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept { return 0; }

 private:
  [[noreturn]] void no_nodes() const { throw Error(ErrorCode::unsupported, name() + " does not sum inside nodes"); }
};

}  // namespace gradwire::transport
