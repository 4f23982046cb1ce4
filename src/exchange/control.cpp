#include "exchange/control.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "exchange/schedule.hpp"
#include "transport/operations.hpp"
#include "transport/silence.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 30;  // a larger string of one rank means that the size itself is damaged

constexpr unsigned kSizeBits = 40;  // low bits of a head of all_to_all(); the call's number stands above them
constexpr const char* kAnotherCall = " is in another call; every rank must make the same calls in the same order";

constexpr std::uint32_t kTags = 1U << 11U;  // used in turn: a sealed transport keeps a number for each

constexpr std::chrono::microseconds kEager{500};

// The peers of the pending operations.
std::vector<int> peers_of(std::span<const Operation> operations) {
  std::vector<int> peers;
  for (const Operation& operation : operations) {
    if (operation.pending()) {
      peers.push_back(operation.peer);
    }
  }
  return peers;
}

// Waits for all operations; the error at the timeout names the ranks of those that are pending.
void wait_all(Transport& transport, std::span<Operation> operations, std::chrono::milliseconds timeout,
              const std::string& what) {
  const auto pending = [](const Operation& operation) { return operation.pending(); };
  AwakeTime idle;
  auto first = operations.begin();  // all operations before it are done
  // Ranks that arrive together shall leave together: a rank that sleeps here would start late in the next measurement.
  const auto polite = std::chrono::steady_clock::now() + kEager;
  for (;;) {
    first = std::find_if(first, operations.end(), pending);
    if (first == operations.end()) {
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < polite) {
      if (!transport.progress(std::chrono::microseconds(0))) {
        std::this_thread::yield();  // other ranks may share the core
      }
    } else if (transport.progress(std::chrono::milliseconds(1))) {
      idle.restart(std::chrono::steady_clock::now());
    } else if (idle.waited() > timeout) {
      throw Error(ErrorCode::timeout,
                  "rank " + std::to_string(transport.rank()) + ": " + what + " got nothing for " +
                      format_duration(timeout) + ", " +
                      transport::describe_wait(transport, peers_of(operations), timeout),
                  ErrorCause::world);
    }
  }
}

std::vector<std::string> texts_of(const std::vector<wire::Bytes>& all) {
  std::vector<std::string> texts;
  texts.reserve(all.size());
  for (const wire::Bytes& bytes : all) {
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return texts;
}

// Aborts the transport, which tells the other ranks. Returns whether it may still touch the operations' buffers.
bool give_up(Transport& transport, std::span<Operation> operations, const Error& error) {
  transport.abort(error);
  bool leak = false;
  for (Operation& operation : operations) {
    leak = (operation.pending() && !transport.cancel(operation)) || leak;
  }
  return leak;
}

}  // namespace

Control::Posted::~Posted() {
  bool leak = false;
  for (Operation& operation : memory_->operations) {
    leak = (operation.pending() && !transport_.cancel(operation)) || leak;
  }
  if (leak) {  // the transport may still read or write it
    static_cast<void>(memory_.release());
  }
}

bool Control::Posted::wait_for(std::chrono::milliseconds most) noexcept {
  const auto over = [this] {
    const std::vector<Operation>& all = memory_->operations;
    return std::none_of(all.begin(), all.end(), [](const Operation& each) { return each.pending(); });
  };
  try {
    for (const auto end = std::chrono::steady_clock::now() + most; !over() && std::chrono::steady_clock::now() < end;) {
      static_cast<void>(transport_.progress(std::chrono::milliseconds(1)));
    }
  } catch (...) {
    return false;
  }
  return over();
}

std::unique_ptr<Control::Posted> Control::post(std::vector<wire::Bytes> sent, std::span<const std::uint64_t> sizes) {
  const auto world = static_cast<std::size_t>(transport_.world_size());
  const auto rank = static_cast<std::size_t>(transport_.rank());
  const Tag tag = (sequence_++ & (kTags - 1)) << kHopBits | static_cast<Tag>(Hop::control);
  auto posted = std::make_unique<Posted>(transport_);
  Posted::Memory& memory = *posted->memory_;
  memory.sent = std::move(sent);
  const bool to_all = memory.sent.size() < world;
  const auto message_to = [&](std::size_t peer) -> wire::Bytes& { return memory.sent[to_all ? 0 : peer]; };
  memory.all.resize(world);
  for (std::size_t peer = 0; peer < world; ++peer) {  // allocates all memory first: nothing may fail between posts
    memory.all[peer].resize(peer == rank ? message_to(rank).size() : sizes[peer]);
  }
  memory.operations = std::vector<Operation>(2 * world);
  try {
    for (std::size_t at = 0; at < world; ++at) {
      const int peer = static_cast<int>(at);
      if (at == rank) {
        memory.all[at] = message_to(at);
        continue;
      }
      if (to_all || !memory.all[at].empty()) {
        transport_.post_receive(memory.operations[2 * at], peer, tag, memory.all[at]);
      }
      if (to_all || !message_to(at).empty()) {
        transport_.post_send(memory.operations[2 * at + 1], peer, tag, message_to(at));
      }
    }
  } catch (...) {
    const Error error = current_error();
    transport_.abort(error);
    throw Error(error);
  }
  return posted;
}

std::vector<wire::Bytes> Control::take(std::unique_ptr<Posted> posted, const std::string& what) {
  try {
    wait_all(transport_, posted->memory_->operations, timeout_, what);
  } catch (...) {
    const Error error = current_error();
    transport_.abort(error);
    throw Error(error);
  }
  return std::move(posted->memory_->all);
}

std::vector<wire::Bytes> Control::exchange(std::span<const std::byte> mine, std::span<const std::uint64_t> sizes,
                                           const std::string& what) {
  return take(post({{mine.begin(), mine.end()}}, sizes), what);
}

std::unique_ptr<Control::Posted> Control::post_all_gather(const std::string& mine) {
  const std::vector<std::uint64_t> sizes(static_cast<std::size_t>(transport_.world_size()), mine.size());
  const auto bytes = std::as_bytes(std::span(mine));
  return post({{bytes.begin(), bytes.end()}}, sizes);
}

std::vector<std::string> Control::complete(std::unique_ptr<Posted> posted, const std::string& what) {
  return texts_of(take(std::move(posted), what));
}

double Control::time_exchange(int to, int from, std::uint64_t bytes) {
  constexpr std::uint64_t kPart = 32ULL << 10;  // bytes of one message
  const std::string what = "the measurement of the link";
  const std::uint64_t parts = (bytes + kPart - 1) / kPart;
  std::vector<std::byte> sent(bytes);  // not of the pool, which may have no more than what the plan needs
  std::vector<std::byte> received(bytes);
  std::vector<Operation> operations(2 * parts);
  barrier();
  const auto begin = std::chrono::steady_clock::now();
  try {
    for (std::uint64_t i = 0; i < parts; ++i) {
      const std::uint64_t first = i * kPart;
      const std::uint64_t count = std::min(kPart, bytes - first);
      transport_.post_receive(operations[2 * i], from, static_cast<Tag>(Hop::control),
                              std::span(received).subspan(first, count));
      transport_.post_send(operations[2 * i + 1], to, static_cast<Tag>(Hop::control),
                           std::span(sent).subspan(first, count));
    }
    wait_all(transport_, operations, timeout_, what);
  } catch (...) {
    const Error error = current_error();
    if (give_up(transport_, operations, error)) {
      new std::vector<std::byte>(std::move(sent));
      new std::vector<std::byte>(std::move(received));
    }
    throw Error(error);
  }
  return seconds_since(begin);
}

std::vector<wire::Bytes> Control::all_gather(std::span<const std::byte> mine, const std::string& what) {
  const auto world = static_cast<std::size_t>(transport_.world_size());
  const std::uint64_t bytes = mine.size();
  const auto sizes =
      exchange(std::as_bytes(std::span(&bytes, 1)), std::vector<std::uint64_t>(world, sizeof bytes), what);
  std::vector<std::uint64_t> counts(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    std::memcpy(&counts[rank], sizes[rank].data(), sizeof(std::uint64_t));
    if (counts[rank] >> kSizeBits != 0) {  // a head of all_to_all()
      fail(ErrorCode::mismatch, what + ": rank " + std::to_string(rank) + kAnotherCall);
    }
    if (counts[rank] > kMostBytes) {
      fail(ErrorCode::corrupt, what + ": rank " + std::to_string(rank) + " announced " + std::to_string(counts[rank]) +
                                   " bytes; does it run the same version?");
    }
  }
  return exchange(mine, counts, what);
}

void Control::fail(ErrorCode code, const std::string& message) {
  const Error error(code, message);
  transport_.abort(error);
  throw Error(error);
}

std::vector<wire::Bytes> Control::all_to_all(std::vector<wire::Bytes> to, std::uint32_t call, const std::string& what) {
  std::vector<wire::Bytes> heads;
  for (const wire::Bytes& message : to) {
    const std::uint64_t head = std::uint64_t{call} << kSizeBits | message.size();
    if (message.size() > kMostBytes && heads.size() != static_cast<std::size_t>(transport_.rank())) {
      fail(ErrorCode::unsupported, what + ": rank " + std::to_string(transport_.rank()) + " has " +
                                       format_bytes(message.size()) + " for one rank, at most " +
                                       format_bytes(kMostBytes) + " travel at once; ask for less at a time");
    }
    const auto bytes = std::as_bytes(std::span(&head, 1));
    heads.emplace_back(bytes.begin(), bytes.end());
  }
  const std::vector<std::uint64_t> sizes_of_heads(to.size(), sizeof(std::uint64_t));
  heads = all_to_all(std::move(heads), sizes_of_heads, what);
  std::vector<std::uint64_t> sizes(to.size());
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    std::memcpy(&sizes[rank], heads[rank].data(), sizeof(std::uint64_t));
    if (sizes[rank] >> kSizeBits != call) {
      fail(ErrorCode::mismatch, what + ": rank " + std::to_string(rank) + kAnotherCall);
    }
    sizes[rank] &= (std::uint64_t{1} << kSizeBits) - 1;
    if (sizes[rank] > kMostBytes) {
      fail(ErrorCode::corrupt, what + ": rank " + std::to_string(rank) + " announced " + std::to_string(sizes[rank]) +
                                   " bytes; does it run the same version?");
    }
  }
  return all_to_all(std::move(to), sizes, what);
}

std::vector<wire::Bytes> Control::all_to_all(std::vector<wire::Bytes> to, std::span<const std::uint64_t> sizes,
                                             const std::string& what) {
  if (to.size() == 1) {
    return to;
  }
  return take(post(std::move(to), sizes), what);
}

std::vector<std::string> Control::all_gather(const std::string& mine, const std::string& what) {
  return texts_of(all_gather(std::as_bytes(std::span(mine)), what));
}

void Control::barrier() {
  const std::byte token{1};
  exchange(std::span(&token, 1), std::vector<std::uint64_t>(static_cast<std::size_t>(transport_.world_size()), 1),
           "barrier");
}

}  // namespace gradwire::exchange
