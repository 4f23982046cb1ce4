// What the interpreter's NCCL enqueues: a group is one piece of work of its stream. It posts its sends, takes what
// peers posted, and ends when all of it has been taken. Sums and gathers are done by the rank that comes last; sums add
// in the order of the ranks.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/ptx/queues.hpp"

namespace gradwire::ptx {

struct Sent {
  const void* bytes;
  std::size_t count;
  std::uint32_t agent;
  std::shared_ptr<std::size_t> untaken;  // of the sender's group
};

enum class Kind : std::uint8_t { sum, sum_parts, sum_at_root, gather };

// A collective of one communicator: what each rank has of it.
struct Meeting {
  struct Part {
    const void* from;
    void* to;
    std::uint32_t agent;
  };
  std::vector<Part> parts;  // by rank
  int arrived = 0;
  bool done = false;
  // What all ranks must say alike.
  Kind kind = Kind::sum;
  ncclDataType_t type = ncclUint8;
  std::size_t count = 0;
  int root = 0;
};

// A split of a communicator: its color and key by rank.
struct Split {
  std::vector<std::pair<int, int>> asked;
  int arrived = 0;
};

// What the ranks of a communicator share.
struct World {
  int size = 0;
  std::map<std::pair<int, int>, std::deque<Sent>> posted;  // by sender and receiver
  std::map<std::uint64_t, Meeting> meetings;               // by their number
  std::map<std::uint64_t, Split> splits;                   // likewise
};

}  // namespace gradwire::ptx

struct ncclComm {
  std::shared_ptr<gradwire::ptx::World> world;
  std::uint64_t key = 0;
  int rank = 0;
  std::uint64_t meetings = 0;
  std::uint64_t splits = 0;
};

namespace gradwire::ptx {

struct Message {
  ncclComm_t comm;
  cudaStream_t stream;
  int peer;
  void* bytes;
  std::size_t count;
  bool sends;
  bool taken = false;
};

struct Collective {
  ncclComm_t comm;
  cudaStream_t stream;
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;  // elements of a part
  ncclDataType_t type;
  int root = 0;
  std::uint64_t number = 0;  // given as it begins, since a graph may be replayed
};

struct Group {
  std::vector<Message> messages;
  std::vector<Collective> collectives;
  std::vector<cudaStream_t> streams;
};

[[nodiscard]] std::size_t bytes_of(ncclDataType_t type);
/// Does what can be done of a group; returns whether all of it has been.
[[nodiscard]] bool run_group(Device& device, Group& group, std::uint32_t agent, std::shared_ptr<std::size_t>& untaken);

}  // namespace gradwire::ptx
