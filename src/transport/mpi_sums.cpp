// Native sums over MPI. A small sum is not an MPI_Iallreduce, whose schedule costs more than its messages, but one
// message to each peer: every rank has all summands after one latency and adds them in rank order. The choice depends
// only on values that are equal on all ranks.
#include <algorithm>
#include <cstring>
#include <string>

#include "transport/mpi_check.hpp"
#include "transport/mpi_endpoint.hpp"

namespace gradwire::transport {
namespace {

template <typename T>
void add_values(std::byte* sum, const std::byte* values, std::uint64_t bytes) {
  // The two arrays do not overlap.
  T* __restrict to = reinterpret_cast<T*>(sum);
  const T* __restrict from = reinterpret_cast<const T*>(values);
  for (std::uint64_t i = 0; i < bytes / sizeof(T); ++i) {
    to[i] += from[i];
  }
}

MPI_Datatype type_of(DType dtype) { return dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE; }

}  // namespace

/// Most bytes of a sum that is made by messages; 0: none is.
std::uint64_t MpiTransport::summed_here_bytes() const noexcept {
  const bool may = world_size_ > 1 && world_size_ <= kSummedHereRanks && !options_.device_memory;
  constexpr std::uint64_t kLine = 64;
  const std::uint64_t all = world_size_ == 2 ? kSummedByTwoBytes : kSummedHereBytes;
  return may ? all / static_cast<std::uint64_t>(world_size_ - 1) / kLine * kLine : 0;
}

void MpiTransport::post_all_reduce(Operation& operation, View data) {
  enter();
  begin_all_reduce(operation, *this, data);
  start(operation, [&](MpiOperation& request) {
    request.dtype = data.dtype;
    if (operation.bytes > 0 && operation.bytes <= summed_here_bytes()) {
      post_sum_by_messages(request);
    } else {
      post_native_sum(request);
    }
  });
}

void MpiTransport::post_native_sum(MpiOperation& request) {
  const Operation& operation = *request.operation;
  const std::uint64_t element = element_bytes(request.dtype);
  const std::uint64_t split = std::max(options_.split_bytes / element, std::uint64_t{1}) * element;
  std::uint64_t at = 0;
  do {  // runs once even for 0 elements
    const std::uint64_t bytes = std::min(operation.bytes - at, split);
    MPI_Request mpi_request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, operation.data + at, static_cast<int>(bytes / element),
                             type_of(request.dtype), MPI_SUM, communicators_.plain(0).comm, &mpi_request),
              "native all-reduce (MPI_Iallreduce)");
    add_part(request, bytes, mpi_request);
    at += split;
  } while (at < operation.bytes);
}

// Every summand fits into its receive buffer, so that MPI never truncates a message.
void MpiTransport::post_sum_by_messages(MpiOperation& request) {
  const std::uint64_t room = summed_here_bytes();
  const auto others = static_cast<std::uint64_t>(world_size_ - 1);
  request.summed_by_messages = true;
  if (request.parts_of_sum.empty()) {
    request.parts_of_sum = memory::Block(room * others, memory::MemoryUse::frames);
  }
  for (std::uint64_t i = 0; i < others; ++i) {
    receive_summand(request, other_rank(i), request.parts_of_sum.data() + i * room);
  }
  for (std::uint64_t i = 0; i < others; ++i) {
    send_summand(request, other_rank(i));
  }
}

std::uint64_t MpiTransport::piece_bytes(int peer) const noexcept {
  return nodes_[static_cast<std::size_t>(peer)] == nodes_[static_cast<std::size_t>(rank_)] ? kNearPiece : kFarPiece;
}

// Sums of different sizes never mix: another number of pieces has another tag, and another size of the last piece is
// noticed.
int MpiTransport::summand_tag(std::uint64_t bytes, std::uint64_t piece) noexcept {
  return kSummandTag + static_cast<int>((bytes - 1) / piece);
}

void MpiTransport::receive_summand(MpiOperation& request, int peer, std::byte* to) {
  const std::uint64_t bytes = request.operation->bytes;
  const std::uint64_t room = summed_here_bytes();
  const std::uint64_t piece = piece_bytes(peer);
  for (std::uint64_t at = 0; at < bytes; at += piece) {
    MPI_Request received = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(to + at, static_cast<int>(std::min(piece, room - at)), MPI_BYTE, peer,
                        summand_tag(bytes, piece), abort_channel_->communicator(), &received),
              "native all-reduce (MPI_Irecv)");
    add_part(request, std::min(piece, bytes - at), received);
  }
}

void MpiTransport::send_summand(MpiOperation& request, int peer) {
  const std::uint64_t bytes = request.operation->bytes;
  const std::uint64_t piece = piece_bytes(peer);
  for (std::uint64_t at = 0; at < bytes; at += piece) {
    MPI_Request sent = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(request.operation->data + at, static_cast<int>(std::min(piece, bytes - at)), MPI_BYTE, peer,
                        summand_tag(bytes, piece), abort_channel_->communicator(), &sent),
              "native all-reduce (MPI_Isend)");
    add_part(request, 0, sent);
  }
}

/// Checks a part of a sum that has ended.
void MpiTransport::check_summand(const MpiPart& part, const MPI_Status& status, int code) const {
  check_mpi(code, "native all-reduce");
  if (part.bytes == 0) {
    return;  // a sent message, or a part of MPI's own sum
  }
  int got = 0;
  MPI_Get_count(&status, MPI_BYTE, &got);
  if (static_cast<std::uint64_t>(got) != part.bytes) {
    throw Error(ErrorCode::mismatch, "native all-reduce of " + std::to_string(part.bytes) + " bytes: rank " +
                                         std::to_string(status.MPI_SOURCE) + " has " + std::to_string(got) +
                                         "; do all ranks call the same collectives with the same counts?");
  }
}

/// Adds the summands, once all have arrived, in rank order, so that all ranks get the same bytes.
void MpiTransport::add_up(const MpiOperation& request) const {
  const Operation& operation = *request.operation;
  const std::uint64_t bytes = operation.bytes;
  const std::uint64_t room = summed_here_bytes();
  auto* const plus = request.dtype == DType::f32 ? &add_values<float> : &add_values<double>;
  if (world_size_ == 2) {
    plus(operation.data, request.parts_of_sum.data(), bytes);  // the order of two does not matter
    return;
  }
  std::byte* sum = rank_ == 0 ? operation.data : request.parts_of_sum.data();
  std::uint64_t next = rank_ == 0 ? 0 : 1;  // the next summand of another rank
  for (int rank = 1; rank < world_size_; ++rank) {
    plus(sum, rank == rank_ ? operation.data : request.parts_of_sum.data() + next++ * room, bytes);
  }
  if (sum != operation.data) {
    std::memcpy(operation.data, sum, bytes);
  }
}

void MpiTransport::all_reduce(View data) {
  enter();
  Operation operation;
  begin_all_reduce(operation, *this, data);
  const std::uint64_t most = std::uint64_t{1} << 30;  // most elements of one call, whose count is an int
  for (std::uint64_t at = 0; at < data.count; at += most) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, operation.data + at * element_bytes(data.dtype),
                            static_cast<int>(std::min(data.count - at, most)), type_of(data.dtype), MPI_SUM,
                            communicators_.plain(0).comm),
              "native all-reduce (MPI_Allreduce)");
  }
  operation.state = Operation::State::done;
  counters_.count(operation, world_size_);
}

}  // namespace gradwire::transport
