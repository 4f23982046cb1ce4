// Messages over MPI.
// A message below kHeadBytes is one MPI message. A longer one is a head of exactly kHeadBytes, which begins with the
// message's size, and the rest in parts of bounded size on a tag of its own, which are received once the head has shown
// that sizes agree. So a message of another size is always noticed, and MPI never truncates one: Open MPI 4.1 writes a
// truncated large message in full, past the end of the buffer. A receive of at most so many bytes tells a short message
// from a head by its size. Where messages may lie in device memory, which only MPI
// can read, the head holds only the size.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "transport/mpi_check.hpp"
#include "transport/mpi_endpoint.hpp"

namespace gradwire::transport {

MpiOperation& MpiTransport::add(Operation& operation) {
  if (over_.empty()) {
    over_.emplace_back();
  }
  pending_.splice(pending_.end(), over_, over_.begin());
  MpiOperation& request = pending_.back();
  request.operation = &operation;
  request.kind = operation.kind;
  request.self = std::prev(pending_.end());
  operation.handle = &request;
  return request;
}

void MpiTransport::add_part(MpiOperation& request, std::uint64_t bytes, MPI_Request mpi_request) {
  requests_.add(mpi_request, {&request, bytes});
  ++request.pending_parts;
}

void MpiTransport::send_part(MpiOperation& request, const std::byte* data, std::uint64_t bytes,
                             MpiCommunicators::Address to) {
  const int peer = request.operation->peer;
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, address_of(peer), to.tag, to.comm, &mpi_request),
            "sending to rank " + std::to_string(peer) + " (MPI_Isend)");
  add_part(request, bytes, mpi_request);
}

void MpiTransport::receive_part(MpiOperation& request, std::byte* data, std::uint64_t bytes,
                                MpiCommunicators::Address from) {
  const int peer = request.operation->peer;
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, address_of(peer), from.tag, from.comm, &mpi_request),
            "receiving from rank " + std::to_string(peer) + " (MPI_Irecv)");
  add_part(request, bytes, mpi_request);
}

void MpiTransport::post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) {
  enter();
  begin_send(operation, *this, peer, tag, data);
  start(operation, [&](MpiOperation& request) {
    const std::uint64_t size = data.size();
    if (size < kHeadBytes) {
      send_part(request, data.data(), size, communicators_.plain(tag));
      return;
    }
    request.head = std::make_unique<std::byte[]>(kHeadBytes);
    std::memcpy(request.head.get(), &size, sizeof(size));
    std::memcpy(request.head.get() + sizeof(size), data.data(), head_payload());
    send_part(request, request.head.get(), kHeadBytes, communicators_.plain(tag));
    for (std::uint64_t at = head_payload(); at < size; at += options_.split_bytes) {
      send_part(request, data.data() + at, std::min(size - at, options_.split_bytes), communicators_.bulk(tag));
    }
  });
}

void MpiTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  enter();
  begin_receive(operation, *this, peer, tag, data, at_most);
  start(operation, [&](MpiOperation& request) {
    if (data.size() < kHeadBytes) {
      receive_part(request, data.data(), data.size(), communicators_.plain(tag));
      return;
    }
    request.head = std::make_unique_for_overwrite<std::byte[]>(kHeadBytes);
    request.awaits_head = true;
    receive_part(request, request.head.get(), kHeadBytes, communicators_.plain(tag));
  });
}

/// Posts the bulk of messages whose heads have arrived, in the order of their receives.
void MpiTransport::receive_bulk(int peer, Tag tag) {
  for (MpiOperation& request : pending_) {
    Operation& operation = *request.operation;
    if (request.kind != Operation::Kind::receive || operation.peer != peer || operation.tag != tag) {
      continue;
    }
    if (request.awaits_head) {
      return;
    }
    if (request.awaits_bulk) {
      request.awaits_bulk = false;
      for (std::uint64_t at = head_payload(); at < operation.bytes; at += options_.split_bytes) {
        receive_part(request, operation.data + at, std::min(operation.bytes - at, options_.split_bytes),
                     communicators_.bulk(tag));
      }
    }
  }
}

/// Notes that a part has ended; returns whether its operation has.
bool MpiTransport::complete(MpiPart part, const MPI_Status& status, int code) {
  MpiOperation& request = *part.owner;
  Operation& operation = *request.operation;
  if (operation.kind == Operation::Kind::receive) {
    check_received(part, status, code);
  } else if (request.summed_by_messages) {
    check_summand(part, status, code);
  } else if (code != MPI_SUCCESS) {
    check_mpi(code, operation.kind == Operation::Kind::send ? "sending to rank " + std::to_string(operation.peer)
                                                            : std::string("native all-reduce"));
  }
  --request.pending_parts;
  if (request.awaits_head) {
    take_head(request, part.bytes);
    receive_bulk(operation.peer, operation.tag);
  }
  if (request.pending_parts > 0 || request.awaits_bulk) {
    return false;
  }
  if (request.summed_by_messages) {
    add_up(request);
  }
  operation.state = Operation::State::done;
  operation.handle = nullptr;
  counters_.count(operation, world_size_);
  reuse(request);
  return true;
}

/// Keeps the memory of an ended operation for the next one.
void MpiTransport::reuse(MpiOperation& request) {
  const std::list<MpiOperation>::iterator self = request.self;
  MpiOperation empty;
  empty.parts_of_sum = std::move(request.parts_of_sum);
  *self = std::move(empty);
  over_.splice(over_.begin(), pending_, self);
}

/// Throws unless MPI received as many bytes as were posted, or fewer where the receive allows that; sets part.bytes to
/// them.
void MpiTransport::check_received(MpiPart& part, const MPI_Status& status, int code) const {
  Operation& operation = *part.owner->operation;
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  if (error_class != MPI_ERR_TRUNCATE) {
    check_mpi(code, "receiving from rank " + std::to_string(operation.peer));
  }
  int got = 0;
  MPI_Get_count(&status, MPI_BYTE, &got);
  const std::uint64_t bytes = got > 0 ? static_cast<std::uint64_t>(got) : 0;
  // The bulk of a message has the size that its head has told.
  const bool whole = operation.bytes < kHeadBytes;
  if (error_class != MPI_ERR_TRUNCATE && operation.at_most && (whole || part.owner->awaits_head)) {
    part.bytes = bytes;
    operation.bytes = whole ? bytes : operation.bytes;
    return;
  }
  if (error_class == MPI_ERR_TRUNCATE || bytes != part.bytes) {
    const std::string size = error_class == MPI_ERR_TRUNCATE && bytes <= part.bytes ? "more"  // MPI need not tell
                             : bytes >= kHeadBytes ? std::to_string(kHeadBytes) + " or more"
                                                   : std::to_string(bytes);
    throw Error(ErrorCode::mismatch, describe_mismatch(operation, size));
  }
}

// Takes what came first of a message: its head, or all of it where it is short, of `bytes`.
void MpiTransport::take_head(MpiOperation& request, std::uint64_t bytes) const {
  Operation& operation = *request.operation;
  if (bytes < kHeadBytes) {
    request.awaits_head = false;
    operation.bytes = bytes;
    std::memcpy(operation.data, request.head.get(), bytes);
    return;
  }
  std::uint64_t size = 0;
  std::memcpy(&size, request.head.get(), sizeof(size));
  if (!takes(operation, size)) {
    throw Error(ErrorCode::mismatch, describe_mismatch(operation, std::to_string(size)));
  }
  std::memcpy(operation.data, request.head.get() + sizeof(size), head_payload());
  request.awaits_head = false;
  request.awaits_bulk = true;
}

}  // namespace gradwire::transport
