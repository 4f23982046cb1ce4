// The errors that headers for CUDA, NCCL, LibTorch, MPI and C promise, each with the call that gives it.
#include <array>
#include <fstream>
#include <limits>
#include <string>

#include "tests/support/scratch_folder.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C
#include "gradwire/mpi_transport.hpp"
#include "tests/support_matrix/c_support.hpp"
#define WITH_MPI(...) __VA_ARGS__
#else
#define WITH_MPI(...) nullptr
#endif

namespace gradwire::support {
namespace {

constexpr std::string_view kStreamCuda = "tests/exchange/stream_cuda_test.cpp";
constexpr std::string_view kTorchTest = "tests/examples/torch_parameters_test.cpp";

constexpr std::string_view kCudaGpu =
    "Error(unsupported) without GPU or driver, with CUDA's text, and for a transport that only the thread that made it "
    "may use";
constexpr std::string_view kCudaStream =
    "Error(invalid_argument) for a null transport, and from CUDA 12.8 on for a stream of another device.";
constexpr std::string_view kCudaNever =
    "Error(unsupported) also for what no session over device memory can do, here measure_error and checksum = true, in "
    "later calls sync modes other than `step`, tables, checkpoint(), restore() and link(); and for a step that is "
    "being "
    "captured.";
constexpr std::string_view kCudaMeasures =
    "The first step is Error(invalid_argument) under codec = \"auto\" and [batch], which choose by measurement.";
constexpr std::string_view kNcclGpu =
    "Error(unsupported) without GPU or driver, with CUDA's text; Error(invalid_argument) for a null communicator, and "
    "from CUDA 12.8 on for a stream of another device;";
constexpr std::string_view kNcclNever =
    "Error(unsupported) also for what no session over device memory can do, here measure_error and checksum = true, in "
    "later calls sync modes other than `step`, tables, checkpoint(), restore() and link().";
constexpr std::string_view kJoin =
    "Error(invalid_argument) on all where the file cannot be written, is no join file, or is that of a job that runs.";

constexpr std::string_view kJoinFile =
    "Error(invalid_argument) where the file is missing, empty, a link, another user's or one that others can read or "
    "write;";
constexpr std::string_view kNullInC =
    "A NULL where none is allowed, and a number that is no enumerator, are GRADWIRE_INVALID_ARGUMENT.";
constexpr std::string_view kNewInC =
    "A field that the library is too old to know must be 0, as must fields named `reserved`: else "
    "GRADWIRE_UNSUPPORTED.";
constexpr std::string_view kWaitInC =
    "GRADWIRE_INVALID_ARGUMENT for a ticket of another session, where a tensor that must come before is not ready on "
    "this rank, and where the tensor's sync mode brings its result with finish.";
constexpr std::string_view kTablesInC = "GRADWIRE_INVALID_ARGUMENT and GRADWIRE_UNSUPPORTED harm nobody,";

void session_twice_over_processes() {
  const auto processes = make_inproc_processes(1).front();
  std::shared_ptr<test::HostDevice> device, other;
  const Session first = session_over(Place::cuda_processes, processes, Policy(), {}, device);
  const Session second = session_over(Place::cuda_processes, processes, Policy(), {}, other);
}

#ifdef GRADWIRE_SUPPORT_MATRIX_OF_C

void before_mpi() {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) {
    throw NotNow{"MPI is initialised already; run the whole test"};
  }
  static_cast<void>(mpi::make_transport(MPI_COMM_WORLD));
}

void below_thread_multiple() {
  start_mpi();
  int level = MPI_THREAD_MULTIPLE;
  MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) {
    throw NotNow{"this MPI grants MPI_THREAD_MULTIPLE to plain MPI_Init"};
  }
  static_cast<void>(mpi::make_processes(MPI_COMM_SELF));
}

void let_join(const std::string& path) {
  start_mpi();
  static_cast<void>(mpi::make_processes(MPI_COMM_SELF, mpi::JoinFile{.path = path}));
}

void over_a_file_of_the_users() {
  const test::ScratchFolder scratch;
  std::ofstream(scratch.file("notes")) << "mine\n";
  let_join(scratch.file("notes"));
}

// Makes one tensor ready, and returns its ticket.
gradwire_ticket ticket_of(SessionInC& session) {
  auto ticket = sized<gradwire_ticket>();
  must(gradwire_session_ready_ticket(session.get(), session.tensor, &ticket));
  return ticket;
}

gradwire_status ask_with_a_ticket_of_another(bool waits) {
  SessionInC mine(with("int8"));
  SessionInC others(with("int8"));
  mine.add();
  others.add();
  const gradwire_ticket ticket = ticket_of(others);
  static_cast<void>(ticket_of(mine));
  std::int32_t done = 0;
  return waits ? gradwire_session_wait(mine.get(), &ticket) : gradwire_session_done(mine.get(), &ticket, &done);
}

void wait_for_two_of_which_one_is_ready() {
  auto options = sized<gradwire_session_options>();
  options.nonfinite = GRADWIRE_SKIP;
  SessionInC session(with("int8"), options);
  session.add();
  must(gradwire_session_add(session.get(), "v", session.other.data(), session.other.size(), GRADWIRE_F32, nullptr));
  const gradwire_ticket ticket = ticket_of(session);
  must(gradwire_session_wait(session.get(), &ticket));
}

void wait_under_a_sync_mode() {
  SessionInC session(with("int8", "sync = { async = true, staleness = 1 }\n"));
  session.add();
  const gradwire_ticket ticket = ticket_of(session);
  must(gradwire_session_wait(session.get(), &ticket));
}

void set_a_field_of_a_newer_header() {
  struct Newer {
    gradwire_communicator_options known;
    std::uint64_t added;
  } newer{};
  newer.known.struct_size = sizeof newer;
  newer.added = 1;
  const CommunicatorInC communicator(newer.known);
}

void set_reserved() {
  SessionInC session(with("int8"));
  auto options = sized<gradwire_tensor_options>();
  options.reserved = 1;
  must(gradwire_session_add_with_options(session.get(), "w", session.gradient.data(), 1, GRADWIRE_F32, &options,
                                         nullptr));
}

void explain_into(std::uint64_t size) {
  SessionInC session(with("int8"));
  session.add();
  std::array<char, 8> text{};
  must(gradwire_session_explain(session.get(), text.data(), size, nullptr));
}

// The table is unchanged: a correct pull follows the wrong one.
void pull_outside() {
  const TableInC table;
  const std::uint64_t outside = 10, inside = 3;
  std::array<float, 2> row{};
  const gradwire_status refused = gradwire_table_pull(table.get(), &outside, 1, row.data());
  const std::string why = gradwire_last_error();
  must(gradwire_table_pull(table.get(), &inside, 1, row.data()));
  if (refused != GRADWIRE_OK) {
    throw Error(static_cast<ErrorCode>(refused - 1), why);
  }
}

constexpr std::array<float, 2> kNan{std::numeric_limits<float>::quiet_NaN(), 0};
constexpr std::uint64_t kId = 3;

void push_nan() {
  const TableInC table;
  must(gradwire_table_push(table.get(), &kId, 1, kNan.data()));
}

void add_table(const gradwire_table_options& options) {
  SessionInC session(with("int8"));
  must(gradwire_session_add_table(session.get(), nullptr, &options, nullptr));
}

void add_table_with_codec(const char* codec) {
  gradwire_table_options options = rows_in_c();
  options.codec = codec;
  add_table(options);
}

void add_table_with_staleness() {
  gradwire_table_options options = rows_in_c();
  options.staleness = 2;
  add_table(options);
}

// A refused table has no effect: the same session then accepts a correct one.
void add_table_twice(void (*wrong)(gradwire_table_options&)) {
  const SessionInC session(with("int8"));
  gradwire_table_options options = rows_in_c();
  wrong(options);
  const gradwire_status refused = gradwire_session_add_table(session.get(), nullptr, &options, nullptr);
  const std::string why = gradwire_last_error();
  options = rows_in_c();
  must(gradwire_session_add_table(session.get(), nullptr, &options, nullptr));
  must(gradwire_session_finish(session.get(), nullptr));
  if (refused != GRADWIRE_OK) {
    throw Error(static_cast<ErrorCode>(refused - 1), why);
  }
}

void push_nan_to_a_session() {
  const SessionInC session(with("int8"));
  const gradwire_table_options options = rows_in_c();
  must(gradwire_session_add_table(session.get(), nullptr, &options, nullptr));
  must(gradwire_session_push(session.get(), 0, &kId, 1, kNan.data()));
}

#endif

constexpr Promise kPromisesOfLibraries[] = {
    {"cuda.hpp", "make_session(transport)", kCudaGpu, kUnsupported, "is there a GPU, and a driver", nullptr,
     kStreamCuda},
    {"cuda.hpp", "make_session(transport)", kCudaGpu, kUnsupported, "MPI_THREAD_MULTIPLE", nullptr,
     "tests/transport/relayed_messages_test.cpp"},
    {"cuda.hpp",
     "make_session(transport)",
     kCudaStream,
     kInvalid,
     "cuda::make_session: transport is null",
     nullptr,
     {},
     "needs CUDA"},
    {"cuda.hpp",
     "make_session(transport)",
     kCudaStream,
     kInvalid,
     "the stream belongs to device",
     nullptr,
     {},
     "needs two GPUs"},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported,
     "measure_error: a session over device memory cannot", [] { play::measure_error(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported, "checksum: frames made on a device carry none",
     [] { play::checksum(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported,
     "over device memory there is no sync but \"step\" yet", [] { play::late_results(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported, "add_table: tables lie in host memory",
     [] { play::tables_of_sessions(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported, "checkpoint: not in a session over device memory",
     [] { play::checkpoint(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaNever, kUnsupported,
     "link: links between devices are not measured yet", [] { play::link(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaMeasures, kInvalid, "codec \"auto\" chooses by measurement",
     [] { play::automatic(Place::cuda); }},
    {"cuda.hpp", "make_session(transport)", kCudaMeasures, kInvalid, "[batch] advises by measurement",
     [] { play::batch(Place::cuda); }},
    {"cuda.hpp", "make_session(processes)", "Error(unsupported) as above.", kUnsupported,
     "agrees in each step whether it counts", [] { play::capture(Place::cuda_processes); }},
    {"cuda.hpp", "make_session(processes)",
     "Error(invalid_argument) as above, and where another session has used `processes`.", kInvalid,
     "serve, or served, another session", &session_twice_over_processes},

    {"nccl.hpp", "make_session()", kNcclGpu, kUnsupported, "is there a GPU, and a driver", nullptr, kStreamCuda},
    {"nccl.hpp", "make_session()", kNcclGpu, kInvalid, "communicator is null", nullptr, kStreamCuda},
    {"nccl.hpp", "make_session()", kNcclGpu, kInvalid, "the stream belongs to device", nullptr, {}, "needs two GPUs"},
    {"nccl.hpp", "make_session()", kNcclNever, kUnsupported, "measure_error: a session over device memory cannot",
     [] { play::measure_error(Place::nccl); }},
    {"nccl.hpp", "make_session()", kNcclNever, kUnsupported, "checksum: frames made on a device carry none",
     [] { play::checksum(Place::nccl); }},
    {"nccl.hpp", "make_session()", kNcclNever, kUnsupported, "over device memory there is no sync but \"step\" yet",
     [] { play::local_steps(Place::nccl); }},
    {"nccl.hpp", "make_session()",
     "which deterministic = true refuses with Error(invalid_argument); a node is what the policy says, else a host.",
     kInvalid, "NCCL's order, which deterministic = true forbids; write two_shot",
     [] { play::deterministic_hierarchical(Place::nccl); }},
    {"nccl.hpp", "Communicator()", "`timeout` of the options: for what blocks. Error(unsupported) for checksum = true.",
     kUnsupported, "checksum: frames made on a device carry none", [] { play::checked_calls(Place::nccl); }},
    {"nccl.hpp", "all_reduce()", "`options.feedback` must be null: Error(unsupported); use a session.", kUnsupported,
     "error feedback over device memory needs a session", [] { play::feedback_of_calls(Place::nccl); }},
    {"nccl.hpp", "all_reduce()", "Error(unsupported), too, for the algorithm hierarchical.", kUnsupported,
     "the algorithm hierarchical is not for device memory", [] { play::hierarchical_calls(Place::nccl); }},

    {"torch.hpp", "view()", "Error(unsupported) for another device, layout or type.", kUnsupported, "layer.x", nullptr,
     kTorchTest},
    {"torch.hpp", "Adapter", "finish() is Error(invalid_argument) that names it;", kInvalid,
     "parameter weight was replaced", nullptr, kTorchTest},

    {"mpi_transport.hpp", "make_transport()",
     "Error(invalid_argument) when MPI is not initialised or already finalised, or `comm` is an intercommunicator.",
     kInvalid, "MPI is not initialised; call MPI_Init_thread", WITH_MPI(&before_mpi)},
    {"mpi_transport.hpp", "make_processes()", "Error(unsupported) without MPI_THREAD_MULTIPLE.", kUnsupported,
     "needs MPI_THREAD_MULTIPLE", WITH_MPI(&below_thread_multiple)},
    {"mpi_transport.hpp", "make_processes(join_file)", kJoin, kInvalid, "is no folder; make it, or name another file",
     WITH_MPI([] { let_join("/dev/null/join"); })},
    {"mpi_transport.hpp", "make_processes(join_file)", kJoin, kInvalid, "is there, and is no join file of gradwire",
     WITH_MPI(&over_a_file_of_the_users)},
    {"mpi_transport.hpp", "join_processes()", kJoinFile, kInvalid, "join file /dev/null/join cannot be opened",
     WITH_MPI([] { static_cast<void>(mpi::join_processes({.path = "/dev/null/join"})); })},

    {"gradwire.h", "all functions", kNullInC, kInvalid, "gradwire_session_finish: session is NULL",
     WITH_MPI([] { must(gradwire_session_finish(nullptr, nullptr)); })},
    {"gradwire.h", "all functions", kNullInC, kInvalid, "gradwire_session_add: dtype is 77", WITH_MPI([] {
       float value = 0;
       const SessionInC session(with("int8"));
       must(gradwire_session_add(session.get(), "w", &value, 1, static_cast<gradwire_dtype>(77), nullptr));
     })},
    {"gradwire.h", "all structs", kNewInC, kUnsupported, "gradwire_communicator_options sets a field that",
     WITH_MPI(&set_a_field_of_a_newer_header)},
    {"gradwire.h", "all structs", kNewInC, kUnsupported, "reserved is not 0", WITH_MPI(&set_reserved)},
    {"gradwire.h", "gradwire_session_done()",
     "The status is that of the step. GRADWIRE_INVALID_ARGUMENT for a ticket of another session.", kInvalid,
     "of another session", WITH_MPI([] { must(ask_with_a_ticket_of_another(false)); })},
    {"gradwire.h", "gradwire_session_wait()", kWaitInC, kInvalid, "of another session",
     WITH_MPI([] { must(ask_with_a_ticket_of_another(true)); })},
    {"gradwire.h", "gradwire_session_wait()", kWaitInC, kInvalid, "that are not ready, and must start first",
     WITH_MPI(&wait_for_two_of_which_one_is_ready)},
    {"gradwire.h", "gradwire_session_wait()", kWaitInC, kInvalid,
     "the tensor's sync mode brings its result with finish()", WITH_MPI(&wait_under_a_sync_mode)},
    {"gradwire.h", "gradwire_session_batch_advice()", "GRADWIRE_INVALID_ARGUMENT where the policy has no [batch].",
     kInvalid, "the policy has no [batch]", WITH_MPI([] {
       auto advice = sized<gradwire_batch_advice>();
       must(gradwire_session_batch_advice(SessionInC(with("int8")).get(), &advice));
     })},
    {"gradwire.h", "gradwire_session_note()",
     "GRADWIRE_INVALID_ARGUMENT where the name is not 1 to 40 letters, digits, '_', '.' and '-', or is the 17th of the "
     "session.",
     kInvalid, "note: \"my loss\" is no name",
     WITH_MPI([] { must(gradwire_session_note(SessionInC(with("int8")).get(), "my loss", 1)); })},
    {"gradwire.h", "texts", "GRADWIRE_INVALID_ARGUMENT where the text does not fit;", kInvalid, "give a buffer of that",
     WITH_MPI([] { explain_into(8); })},

    {"tables.h", "tables", "GRADWIRE_INVALID_ARGUMENT harms nobody and changes nothing.", kInvalid,
     "id 10 (number 0 of 1) lies outside the table", WITH_MPI(&pull_outside)},
    {"tables.h", "gradwire_table_push()",
     "GRADWIRE_INVALID_ARGUMENT names an id with NaN or Inf; nothing was sent then.", kInvalid,
     "the row for id 3 has NaN or Inf", WITH_MPI(&push_nan)},
    {"tables.h", "gradwire_table_prefetch()", "GRADWIRE_INVALID_ARGUMENT without cache_bytes and store.", kInvalid,
     "there is no cache", WITH_MPI([] { must(gradwire_table_prefetch(TableInC().get(), &kId, 1)); })},
    {"tables.h", "tables of a session", kTablesInC, kInvalid, "a name has 1 to 128 letters",
     WITH_MPI([] { add_table_twice([](gradwire_table_options& options) { options.name = "a/b"; }); })},
    {"tables.h", "tables of a session", kTablesInC, kUnsupported, "reserved is not 0",
     WITH_MPI([] { add_table_twice([](gradwire_table_options& options) { options.reserved = 1; }); })},
    {"tables.h", "gradwire_session_add_table()",
     "GRADWIRE_INVALID_ARGUMENT for options of a gradwire_table alone: staleness, cache_bytes, read_own_writes.",
     kInvalid, "staleness is for a Table of its own", WITH_MPI(&add_table_with_staleness)},
    {"tables.h", "gradwire_session_add_table()", "GRADWIRE_UNSUPPORTED for codecs other than exact, bf16 and int8.",
     kUnsupported, "rows have no codec \"int4\"", WITH_MPI([] { add_table_with_codec("int4"); })},
    {"tables.h", "gradwire_session_push()",
     "GRADWIRE_INVALID_ARGUMENT names an id with NaN or Inf; nothing of that call was kept then.", kInvalid,
     "the gradient for id 3 has NaN or Inf", WITH_MPI(&push_nan_to_a_session)},
};

}  // namespace

std::span<const Promise> promises_of_libraries() { return kPromisesOfLibraries; }

}  // namespace gradwire::support
