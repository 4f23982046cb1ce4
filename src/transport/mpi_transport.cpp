// Ranks as MPI processes: MPI_Isend, MPI_Irecv and MPI_Iallreduce on a private duplicate of the user's communicator,
// tested in one MPI_Testsome.
// A message below kHeadBytes is one MPI message. A longer one is a head of exactly kHeadBytes, which begins with the
// message's size, and the rest in parts of bounded size on a tag of its own, received once the head has told that sizes
// agree. So a message of another size is always noticed, and never truncated by MPI: Open MPI 4.1 writes the whole of
// a truncated large message, past the end of the buffer. Where messages may lie in device memory, which only MPI can
// read, the head holds nothing but the size.
#include "transport/mpi_transport.hpp"

#include <atomic>
#include <cstring>
#include <iterator>
#include <list>
#include <memory>
#include <set>
#include <thread>

#include "transport/backoff.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_communicators.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_remains.hpp"
#include "transport/mpi_requests.hpp"
#include "transport/operations.hpp"

namespace gradwire::transport {
namespace {

using Clock = Backoff::Clock;

constexpr std::uint64_t kHeadBytes = 2048;  // eager with every MPI, so that truncation is harmless

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, MpiOptions options);
  ~MpiTransport() override;

  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int world_size() const noexcept override { return world_size_; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    return {.native_all_reduce_f32 = true,
            .native_all_reduce_f64 = true,
            .all_reduce_in_call = true,
            .checksum_by_default = true,
            .any_thread = level_ >= MPI_THREAD_SERIALIZED,
            .device_memory = options_.device_memory,
            .emulation = {}};
  }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return nodes_; }
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override;
  void post_all_reduce(Operation& operation, View data) override;
  void all_reduce(View data) override;
  bool progress(std::chrono::microseconds wait) override;
  bool cancel(Operation& operation) noexcept override;
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override;
  void abort(ErrorCode code, const std::string& message) noexcept override;
  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  static constexpr std::chrono::milliseconds kAnnounceLimit{500};

  [[nodiscard]] bool may_use_mpi() const noexcept;
  void enter();
  void throw_if_aborted();

  MpiOperation& add(Operation& operation);
  void add_part(MpiOperation& request, std::uint64_t bytes, MPI_Request mpi_request);
  bool give_up(MpiOperation& request) noexcept;
  template <class Post>
  void start(Operation& operation, Post post);
  /// Bytes of a longer message that its head carries.
  [[nodiscard]] std::uint64_t head_payload() const noexcept {
    return options_.device_memory ? 0 : kHeadBytes - sizeof(std::uint64_t);
  }
  void send_part(MpiOperation& request, const std::byte* data, std::uint64_t bytes, MpiCommunicators::Address to);
  void receive_part(MpiOperation& request, std::byte* data, std::uint64_t bytes, MpiCommunicators::Address from);
  void receive_bulk(int peer, Tag tag);

  bool test();
  [[nodiscard]] std::vector<int> awaited() const;
  bool complete(const MpiPart& part, const MPI_Status& status, int code);
  void check_received(const MpiPart& part, const MPI_Status& status, int code) const;
  void take_head(MpiOperation& request) const;

  MpiOptions options_;
  std::uint32_t serial_;
  int rank_ = 0;
  int world_size_ = 1;
  std::vector<std::uint32_t> nodes_;
  int level_;
  std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<std::thread::id> last_user_ = std::this_thread::get_id();
  MpiCommunicators communicators_;
  std::unique_ptr<MpiAbortChannel> abort_channel_;

  MpiRequests requests_;
  std::list<MpiOperation> pending_;
  bool leaked_ = false;    // MPI still holds an operation that was given up, or an answer may come
  bool left_sum_ = false;  // and it is a sum over all ranks
  Backoff backoff_;
  Counters counters_;
};

MpiTransport::MpiTransport(MPI_Comm comm, MpiOptions options)
    : options_(options),
      serial_(begin_transport(comm, options.timeout)),
      level_(mpi_thread_level()),
      communicators_(comm, options.tag_upper_bound, options.timeout),
      backoff_(options.yield) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &world_size_), "MPI_Comm_size");
  nodes_ = find_nodes(communicators_.first(), rank_, world_size_, options.timeout);
  abort_channel_ = std::make_unique<MpiAbortChannel>(communicators_.first(), rank_, world_size_, options.timeout);
  requests_.add(abort_channel_->request(), {});
}

MpiTransport::~MpiTransport() {
  const bool may_use = may_use_mpi();
  if (may_use && abort_channel_->raised()) {
    abort_channel_->announce(kAnnounceLimit);
  }
  while (!pending_.empty()) {
    give_up(pending_.front());
  }
  // After an abort peers may be gone, and freeing a communicator is collective.
  const bool take_leave = may_use && !abort_channel_->raised() && !leaked_;
  const bool closed = may_use && abort_channel_->close();
  if (take_leave && closed) {
    abort_channel_->free();
    communicators_.free();
    return;
  }
  if (closed && !left_sum_ && communicators_.only()) {
    leave_behind({serial_, communicators_.first(), abort_channel_->communicator()});
    return;
  }
  static_cast<void>(abort_channel_.release());
}

/// For calls that no other call of this transport overlaps.
bool MpiTransport::may_use_mpi() const noexcept {
  return mpi_is_up() && (level_ >= MPI_THREAD_SERIALIZED || std::this_thread::get_id() == maker_);
}

void MpiTransport::enter() {
  if (!mpi_is_up()) {
    require_mpi("mpi rank " + std::to_string(rank_));  // throws
  }
  const std::thread::id self = std::this_thread::get_id();
  if (level_ < MPI_THREAD_SERIALIZED && self != maker_) {
    throw Error(ErrorCode::invalid_argument,
                "mpi rank " + std::to_string(rank_) +
                    ": used by another thread than the one that made the transport, which MPI's thread level forbids; "
                    "initialise with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)");
  }
  if (last_user_.load(std::memory_order_relaxed) != self) {
    last_user_ = self;
  }
  throw_if_aborted();
}

void MpiTransport::throw_if_aborted() {
  if (abort_channel_->raised()) {
    abort_channel_->announce(kAnnounceLimit);
    throw abort_channel_->error();
  }
}

void MpiTransport::abort(ErrorCode code, const std::string& message) noexcept {
  // Another thread may be inside MPI at this moment; then that thread tells the others in its next call.
  const bool alone = level_ == MPI_THREAD_MULTIPLE || std::this_thread::get_id() == last_user_;
  if (abort_channel_->raise(code, message) && alone && mpi_is_up()) {
    abort_channel_->announce(kAnnounceLimit);
  }
}

MpiOperation& MpiTransport::add(Operation& operation) {
  pending_.emplace_back();
  MpiOperation& request = pending_.back();
  request.operation = &operation;
  request.kind = operation.kind;
  request.self = std::prev(pending_.end());
  operation.handle = &request;
  return request;
}

void MpiTransport::add_part(MpiOperation& request, std::uint64_t bytes, MPI_Request mpi_request) {
  requests_.add(mpi_request, {&request, bytes});
  ++request.parts_left;
}

/// Calls post(request), and takes the operation back if that throws.
template <class Post>
void MpiTransport::start(Operation& operation, Post post) {
  try {
    post(add(operation));
  } catch (...) {
    cancel(operation);
    throw;
  }
  backoff_.touch();
}

void MpiTransport::send_part(MpiOperation& request, const std::byte* data, std::uint64_t bytes,
                             MpiCommunicators::Address to) {
  const int peer = request.operation->peer;
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, to.tag, to.comm, &mpi_request),
            "sending to rank " + std::to_string(peer) + " (MPI_Isend)");
  add_part(request, bytes, mpi_request);
}

void MpiTransport::receive_part(MpiOperation& request, std::byte* data, std::uint64_t bytes,
                                MpiCommunicators::Address from) {
  const int peer = request.operation->peer;
  MPI_Request mpi_request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, from.tag, from.comm, &mpi_request),
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

void MpiTransport::post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) {
  enter();
  begin_receive(operation, *this, peer, tag, data);
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

/// Posts the bulk of the messages whose heads have come, in the order of their receives: none before an earlier one's.
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

void MpiTransport::post_all_reduce(Operation& operation, View data) {
  enter();
  begin_all_reduce(operation, *this, data);
  const std::uint64_t element = element_bytes(data.dtype);
  MPI_Datatype type = data.dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE;
  const std::uint64_t split = std::max(options_.split_bytes / element, std::uint64_t{1}) * element;
  start(operation, [&](MpiOperation& request) {
    std::uint64_t at = 0;
    do {  // once for no elements too
      const std::uint64_t bytes = std::min(operation.bytes - at, split);
      MPI_Request mpi_request = MPI_REQUEST_NULL;
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, operation.data + at, static_cast<int>(bytes / element), type, MPI_SUM,
                               communicators_.plain(0).comm, &mpi_request),
                "native all-reduce (MPI_Iallreduce)");
      add_part(request, bytes, mpi_request);
      at += split;
    } while (at < operation.bytes);
  });
}

void MpiTransport::all_reduce(View data) {
  enter();
  Operation operation;
  begin_all_reduce(operation, *this, data);
  const MPI_Datatype type = data.dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE;
  const std::uint64_t most = std::uint64_t{1} << 30;  // elements of one call, whose count is an int
  for (std::uint64_t at = 0; at < data.count; at += most) {
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, operation.data + at * element_bytes(data.dtype),
                      static_cast<int>(std::min(data.count - at, most)), type, MPI_SUM, communicators_.plain(0).comm),
        "native all-reduce (MPI_Allreduce)");
  }
  operation.state = Operation::State::done;
  counters_.count(operation, world_size_);
}

bool MpiTransport::progress(std::chrono::microseconds wait) {
  enter();
  const auto deadline = Clock::now() + bounded(wait);
  for (;;) {
    const bool any = test();
    throw_if_aborted();
    if (any || pending_.empty() || wait.count() <= 0 || Clock::now() >= deadline) {
      return any;
    }
    backoff_.pause(deadline);
  }
}

std::vector<PeerState> MpiTransport::ask(std::chrono::milliseconds limit) {
  enter();
  abort_channel_->ask();
  const auto deadline = Clock::now() + limit;
  const auto& answers = abort_channel_->answers();
  backoff_.touch();
  while (Clock::now() < deadline &&
         !std::all_of(answers.begin(), answers.end(), [](const PeerState& peer) { return peer.answers; })) {
    test();
    throw_if_aborted();
    backoff_.pause(deadline);
  }
  // A late answer must not meet another communicator in the place of this one.
  leaked_ = leaked_ || std::any_of(answers.begin(), answers.end(), [](const PeerState& peer) { return !peer.answers; });
  return answers;
}

/// The ranks whose messages this one awaits.
std::vector<int> MpiTransport::awaited() const {
  std::set<int> ranks;
  for (const MpiOperation& request : pending_) {
    if (request.kind == Operation::Kind::receive) {
      ranks.insert(request.operation->peer);
    }
  }
  return {ranks.begin(), ranks.end()};
}

/// Whether any operation is over.
bool MpiTransport::test() {
  bool any = false;
  const bool active = requests_.test([&](const MpiPart& part, const MPI_Status& status, int code) {
    if (part.owner == nullptr) {
      abort_channel_->take(status, [this] { return awaited(); });
      if (abort_channel_->request() != MPI_REQUEST_NULL) {
        requests_.add(abort_channel_->request(), {});
      }
    } else {
      any |= complete(part, status, code);
    }
  });
  if (active) {
    backoff_.touch();
  }
  return any;
}

/// One part is over; whether its operation is.
bool MpiTransport::complete(const MpiPart& part, const MPI_Status& status, int code) {
  MpiOperation& request = *part.owner;
  Operation& operation = *request.operation;
  if (operation.kind == Operation::Kind::receive) {
    check_received(part, status, code);
  } else {
    check_mpi(code, operation.kind == Operation::Kind::send ? "sending to rank " + std::to_string(operation.peer)
                                                            : std::string("native all-reduce"));
  }
  --request.parts_left;
  if (request.awaits_head) {
    take_head(request);
    receive_bulk(operation.peer, operation.tag);
  }
  if (request.parts_left > 0 || request.awaits_bulk) {
    return false;
  }
  operation.state = Operation::State::done;
  operation.handle = nullptr;
  counters_.count(operation, world_size_);
  pending_.erase(request.self);
  return true;
}

/// Throws unless MPI received as many bytes as were posted.
void MpiTransport::check_received(const MpiPart& part, const MPI_Status& status, int code) const {
  const Operation& operation = *part.owner->operation;
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  if (error_class != MPI_ERR_TRUNCATE) {
    check_mpi(code, "receiving from rank " + std::to_string(operation.peer));
  }
  int got = 0;
  MPI_Get_count(&status, MPI_BYTE, &got);
  const std::uint64_t bytes = got > 0 ? static_cast<std::uint64_t>(got) : 0;
  if (error_class == MPI_ERR_TRUNCATE || bytes != part.bytes) {
    const std::string size = error_class == MPI_ERR_TRUNCATE && bytes <= part.bytes ? "more"  // MPI need not tell
                             : bytes >= kHeadBytes ? std::to_string(kHeadBytes) + " or more"
                                                   : std::to_string(bytes);
    throw Error(ErrorCode::mismatch, describe_mismatch(operation, size));
  }
}

void MpiTransport::take_head(MpiOperation& request) const {
  const Operation& operation = *request.operation;
  std::uint64_t size = 0;
  std::memcpy(&size, request.head.get(), sizeof(size));
  if (size != operation.bytes) {
    throw Error(ErrorCode::mismatch, describe_mismatch(operation, std::to_string(size)));
  }
  std::memcpy(operation.data, request.head.get() + sizeof(size), head_payload());
  request.awaits_head = false;
  request.awaits_bulk = true;
}

bool MpiTransport::cancel(Operation& operation) noexcept {
  if (!operation.pending() || operation.handle == nullptr) {
    return true;
  }
  const bool over = give_up(*static_cast<MpiOperation*>(operation.handle));
  operation.handle = nullptr;
  operation.state = Operation::State::idle;
  return over;
}

/// Forgets the request without touching its operation. True: MPI has let go of the buffer.
bool MpiTransport::give_up(MpiOperation& request) noexcept {
  std::vector<MPI_Request> own = requests_.take(request);
  bool over = own.empty();
  if (!over && may_use_mpi()) {
    const int count = static_cast<int>(own.size());
    over = request.kind == Operation::Kind::receive ? cancel_receives(own.data(), count)
                                                    : finish_all(own.data(), count, std::chrono::milliseconds(0));
  }
  if (!over) {
    static_cast<void>(request.head.release());
    leaked_ = true;
    left_sum_ = left_sum_ || request.kind == Operation::Kind::all_reduce;
  }
  pending_.erase(request.self);
  return over;
}

}  // namespace

std::shared_ptr<Transport> make_mpi(MPI_Comm comm, MpiOptions options) {
  check_communicator(comm);
  if (options.ignore_broken_pipes) {
    ignore_broken_pipes();
  }
  return std::make_shared<MpiTransport>(comm, options);
}

}  // namespace gradwire::transport
