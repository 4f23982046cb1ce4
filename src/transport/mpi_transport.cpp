// Ranks as MPI processes: MPI_Isend, MPI_Irecv and MPI_Iallreduce on a private duplicate of the user's communicator,
// tested in one MPI_Testsome.
#include "transport/mpi_transport.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/forked.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_endpoint.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_faults.hpp"
#include "transport/mpi_remains.hpp"
#include "transport/mpi_spawned.hpp"

namespace gradwire::transport {

MpiTransport::MpiTransport(MPI_Comm comm, const MpiOptions& options)
    : options_(options),
      serial_(begin_transport(comm, options.timeout)),
      level_(mpi_thread_level()),
      communicators_(comm, options.tag_upper_bound, options.timeout, options.some_may_end),
      backoff_(options.yield) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &world_size_), "MPI_Comm_size");
  nodes_ =
      options.some_may_end ? options.nodes : find_nodes(communicators_.first(), rank_, world_size_, options.timeout);
  MPI_Comm notices = options.some_may_end ? options.notices
                                          : duplicate(communicators_.first(), options.timeout,
                                                      "duplicating the communicator for abort messages "
                                                      "(MPI_Comm_idup)");
  auto channel = std::make_unique<MpiAbortChannel>(notices, rank_, world_size_);
  abort_channel_ = channel.get();
  notices_ = std::move(channel);
  requests_.add(abort_channel_->request(), {});
}

MpiTransport::~MpiTransport() {
  const bool may_use = may_use_mpi();
  if (may_use && notices_->raised()) {
    announce();
  }
  while (!pending_.empty()) {
    give_up(pending_.front());
  }
  if (slot_ != nullptr) {
    end_in_slot();
    return;
  }
  if (may_use && is_faulty()) {
    revoke();  // another rank may still wait here for a rank that has left the call
    static_cast<void>(notices_.release());
    return;
  }
  // Freeing a communicator is collective, and after an abort peers may be gone.
  const bool take_leave = may_use && !notices_->raised() && !leaked_;
  const bool closed = may_use && abort_channel_->close();
  if (take_leave && closed) {
    abort_channel_->free();
    communicators_.free();
    return;
  }
  if (closed && !mpi_holds_sum_ && communicators_.has_spare_tag()) {
    leave_behind({serial_, communicators_.first(), abort_channel_->communicator()});
    return;
  }
  static_cast<void>(notices_.release());
}

/// Whether this thread may call MPI, if no other call of this transport runs at the same time.
bool MpiTransport::may_use_mpi() const noexcept { return mpi_is_up() && is_right_thread(); }

void MpiTransport::enter() {
  if (!mpi_is_up()) {
    require_mpi("mpi rank " + std::to_string(rank_));  // throws
  }
  const std::thread::id self = std::this_thread::get_id();
  if (!is_right_thread()) {
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

bool MpiTransport::is_faulty() const noexcept {
  if (slot_ != nullptr) {
    return slot_is_faulty();
  }
  return transport::is_faulty(communicators_.first()) || transport::is_faulty(abort_channel_->communicator());
}

void MpiTransport::revoke() noexcept {
  if (slot_ != nullptr) {
    tell_faulty(*slot_);
    return;
  }
  communicators_.revoke();
  transport::revoke(abort_channel_->communicator());
}

/// Tells the other ranks that this one gives up, except where MPI itself reports a rank's end to all of them.
void MpiTransport::announce() noexcept {
  if (slot_ != nullptr || (!options_.some_may_end && !is_faulty())) {
    notices_->announce(kAnnounceLimit);
  }
}

void MpiTransport::throw_if_aborted() {
  if (notices_->raised()) {
    announce();
    throw notices_->error();
  }
}

void MpiTransport::abort(const Error& error) noexcept {
  // Another thread may be inside MPI at this moment; that thread then tells the other ranks in its next call.
  const bool alone = level_ == MPI_THREAD_MULTIPLE || std::this_thread::get_id() == last_user_;
  if (notices_->raise(error) && alone && mpi_is_up()) {
    announce();
  }
}

bool MpiTransport::progress(std::chrono::microseconds wait) {
  enter();
  bool any = test();
  throw_if_aborted();
  if (any || pending_.empty() || wait.count() <= 0) {  // does not read the clock
    return any;
  }
  for (const auto deadline = Clock::now() + bounded(wait); !any && Clock::now() < deadline;) {
    backoff_.pause(deadline);
    any = test();
    throw_if_aborted();
  }
  look_at_silence(any);
  return any;
}

void MpiTransport::look_at_silence(bool any) {
  if (!options_.on_silence) {
    return;
  }
  const auto now = Clock::now();
  if (any || std::exchange(posted_, false)) {
    heard_ = now;
  } else if (now - heard_ >= options_.silence) {
    heard_ = now;
    options_.on_silence(awaited());
  }
}

std::vector<PeerState> MpiTransport::ask(std::chrono::milliseconds limit) {
  enter();
  notices_->ask();
  const auto deadline = Clock::now() + limit;
  const auto& answers = notices_->answers();
  backoff_.posted();
  while (Clock::now() < deadline &&
         !std::all_of(answers.begin(), answers.end(), [](const PeerState& peer) { return peer.answers; })) {
    test();
    throw_if_aborted();
    backoff_.pause(deadline);
  }
  // A receive of a later communicator with the same id must not match a late answer.
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

/// Tests the requests; returns whether any operation has ended.
bool MpiTransport::test() {
  bool any = false;
  notices_->poll([this] { return awaited(); });
  const bool active = requests_.test([&](const MpiPart& part, const MPI_Status& status, int code) {
    if (part.owner == nullptr) {
      notices_->take(status, code, [this] { return awaited(); });
      if (notices_->request() != MPI_REQUEST_NULL) {
        requests_.add(notices_->request(), {});
      }
    } else {
      any |= complete(part, status, code);
    }
  });
  if (active) {
    backoff_.completed();
  }
  return any;
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

/// Removes the request without touching its operation. True: MPI no longer uses the buffer.
bool MpiTransport::give_up(MpiOperation& request) noexcept {
  std::vector<MPI_Request> own = requests_.take(request);
  bool over = own.empty();
  if (!over && may_use_mpi() && !is_faulty()) {  // on a faulty communicator MPI may never end them
    const int count = static_cast<int>(own.size());
    over = request.kind == Operation::Kind::receive || request.summed_by_messages
               ? cancel_receives(own.data(), count)
               : finish_all(own.data(), count, std::chrono::milliseconds(0));
  }
  if (!over) {
    static_cast<void>(request.head.release());
    request.parts_of_sum.leak();
    leaked_ = true;
    mpi_holds_sum_ = mpi_holds_sum_ || (request.kind == Operation::Kind::all_reduce && !request.summed_by_messages);
  }
  pending_.erase(request.self);
  return over;
}

std::shared_ptr<Transport> make_mpi(MPI_Comm comm, const MpiOptions& options) {
  check_communicator(comm);
  if (options.ignore_broken_pipes) {
    ignore_broken_pipes();
  }
  name_spawned_world();
  return make_shared_at_home<MpiTransport>(comm, options);
}

bool is_faulty(const Transport& transport) noexcept { return static_cast<const MpiTransport&>(transport).is_faulty(); }

void revoke(Transport& transport) noexcept { static_cast<MpiTransport&>(transport).revoke(); }

}  // namespace gradwire::transport
