// Tests the calls of NcclMessages to NCCL and its reaction to the results. This file defines the functions of NCCL, so
// that no GPU is needed.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/nccl_messages.hpp"

struct ncclComm {
  int rank = 1;
  int ranks = 3;
};

namespace {

// A fake of NCCL that does what the tests ask for.
struct Fake {
  std::vector<std::string> calls;
  ncclResult_t async = ncclSuccess;
  ncclResult_t next = ncclSuccess;  // the result of the next call
  int in_progress = 0;              // how often ncclCommGetAsyncError reports this
  ncclConfig_t config = {};
  bool stuck = false;  // ncclGroupEnd hangs until aborted
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<int> aborts{0};
  const void* reduced_from = nullptr;
  void* reduced_to = nullptr;
};
Fake* fake = nullptr;
ncclComm child;

ncclResult_t answer(const std::string& call) {
  fake->calls.push_back(call);
  return std::exchange(fake->next, ncclSuccess);
}
std::string bytes_and_peer(size_t bytes, int peer) { return std::to_string(bytes) + " " + std::to_string(peer); }

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): shorter names than nccl.h has
extern "C" {
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "a system error" : "an error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return "the cable is out"; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t /*comm*/, int* device) {
  *device = 5;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t /*comm*/) { return answer("destroy"); }
ncclResult_t ncclCommAbort(ncclComm_t /*comm*/) {
  const std::lock_guard lock(fake->mutex);
  ++fake->aborts;
  fake->wake.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
  *state = fake->in_progress > 0 ? ncclInProgress : fake->async;
  fake->in_progress -= fake->in_progress > 0 ? 1 : 0;
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t /*comm*/, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  fake->config = *config;
  *made = color == NCCL_SPLIT_NOCOLOR ? nullptr : &child;
  return answer("split " + std::to_string(color) + " " + std::to_string(key));
}
ncclResult_t ncclGroupStart() { return answer("start"); }
ncclResult_t ncclGroupEnd() {
  if (fake->stuck) {
    std::unique_lock lock(fake->mutex);
    fake->wake.wait(lock, [] { return fake->aborts > 0; });
    return ncclSystemError;
  }
  return answer("end");
}
ncclResult_t ncclSend(const void* /*from*/, size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t /*comm*/,
                      cudaStream_t /*stream*/) {
  return answer("send " + bytes_and_peer(count, peer));
}
ncclResult_t ncclRecv(void* /*to*/, size_t count, ncclDataType_t /*type*/, int peer, ncclComm_t /*comm*/,
                      cudaStream_t /*stream*/) {
  return answer("receive " + bytes_and_peer(count, peer));
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t /*comm*/, cudaStream_t /*stream*/) {
  return answer("all_reduce " + std::to_string(count) + " " + std::to_string(type) +
                (from == to && op == ncclSum ? "" : " not in place or no sum"));
}
ncclResult_t ncclReduceScatter(const void* /*from*/, void* /*to*/, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t /*stream*/) {
  return answer("reduce_scatter " + std::to_string(count) + " " + std::to_string(type) +
                (comm == &child && op == ncclSum ? "" : " not on the node or no sum"));
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t /*stream*/) {
  fake->reduced_from = from;
  fake->reduced_to = to;
  return answer("reduce " + std::to_string(count) + " " + std::to_string(type) + " to " + std::to_string(root) +
                (comm == &child && op == ncclSum ? "" : " not on the node or no sum"));
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t /*stream*/) {
  const bool in_place = from == static_cast<std::byte*>(to) + static_cast<size_t>(comm->rank) * count;
  return answer("all_gather " + std::to_string(count) +
                (comm == &child && type == ncclUint8 && in_place ? "" : " not on the node, of bytes and in place"));
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace gradwire::test {
namespace {

using transport::NcclMessages;
using Calls = std::vector<std::string>;

class NcclMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = &nccl_; }
  std::unique_ptr<NcclMessages> adopt() { return NcclMessages::adopt(&comm_); }

  Fake nccl_;
  ncclComm comm_;
};

template <class Body>
std::pair<ErrorCode, std::string> error_of(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::internal, "nothing was thrown"};
}

TEST_F(NcclMessagesTest, WorksOnAChildThatBlocksAndSharesNothing) {
  nccl_.next = ncclInProgress;  // the caller's communicator is nonblocking
  nccl_.in_progress = 3;
  const auto messages = NcclMessages::over(&comm_);
  EXPECT_EQ(nccl_.calls, Calls{"split 0 1"});
  EXPECT_EQ(nccl_.in_progress, 0);
  EXPECT_EQ(nccl_.config.blocking, 1);
  EXPECT_EQ(nccl_.config.splitShare, 0);
  EXPECT_EQ(messages->rank(), 1);
  EXPECT_EQ(messages->world_size(), 3);
  EXPECT_EQ(messages->device(), 5);
}

TEST_F(NcclMessagesTest, PassesOnWhatIsEnqueued) {
  const auto messages = adopt();
  std::array<std::byte, 16> memory{};
  messages->connect(memory, nullptr);
  const std::string sum_of = "all_reduce ";
  const std::string floats = " " + std::to_string(ncclFloat32);
  messages->begin_group();
  messages->send(memory, 2, nullptr);
  messages->receive(std::span(memory).first(7), 0, nullptr);
  messages->end_group();
  messages->all_reduce(memory.data(), DType::bf16, 8, nullptr);
  EXPECT_EQ(nccl_.calls, (Calls{"start", "send 1 2", "receive 1 0", "send 1 0", "receive 1 2", "end",
                                sum_of + "1" + floats, sum_of + "4" + floats, "start", "send 16 2", "receive 7 0",
                                "end", "all_reduce 8 " + std::to_string(ncclBfloat16)}));
}

// Mutation tried: the rest is taken from the front.
TEST_F(NcclMessagesTest, JoinsANodeAndSumsAndGathersThere) {
  auto messages = adopt();
  std::array<std::byte, 96> memory{};
  child.rank = 2;  // the last place
  messages->join_node(4, 2, memory, nullptr);
  const std::string floats = " " + std::to_string(ncclFloat32);
  const auto uses = [&](int each) {
    return Calls{"start",
                 "reduce_scatter " + std::to_string(each) + floats,
                 "reduce 1" + floats + " to 2",
                 "end",
                 "start",
                 "all_gather " + std::to_string(each),
                 "end"};
  };
  Calls wanted{"split 4 2"};
  for (const int each : {1, 3}) {  // 48 bytes are four floats of three places, of which one is for the rest
    const Calls more = uses(each);
    wanted.insert(wanted.end(), more.begin(), more.end());
  }
  EXPECT_EQ(nccl_.calls, wanted);
  EXPECT_EQ(nccl_.config.blocking, 1);
  EXPECT_EQ(nccl_.config.splitShare, 0);
  nccl_.calls.clear();
  messages->sum_in_node(memory.data(), memory.data() + 40, DType::bf16, 5, 2, nullptr);
  EXPECT_EQ(nccl_.reduced_from, memory.data() + 30);
  EXPECT_EQ(nccl_.reduced_to, memory.data() + 50);
  messages->sum_in_node(memory.data(), memory.data() + 40, DType::f32, 5, 0, nullptr);
  messages->gather_in_node(memory.data(), 16, nullptr);
  const std::string brains = " " + std::to_string(ncclBfloat16);
  EXPECT_EQ(nccl_.calls, (Calls{"reduce_scatter 5" + brains, "reduce 2" + brains + " to 2", "reduce_scatter 5" + floats,
                                "all_gather 16"}));
  nccl_.calls.clear();
  messages.reset();
  EXPECT_EQ(nccl_.calls, (Calls{"destroy", "destroy"}));
  child.rank = 0;
  messages = adopt();
  messages->join_node(4, 0, memory, nullptr);
  messages->sum_in_node(memory.data(), memory.data() + 40, DType::f32, 5, 2, nullptr);
  EXPECT_EQ(nccl_.reduced_to, nullptr) << "the rest is the last place's";
  messages->abort(Error(ErrorCode::internal, "enough"));
  EXPECT_EQ(nccl_.aborts, 2);
  child.rank = 1;
}

TEST_F(NcclMessagesTest, ErrorsNameTheCallThePeerAndNcclsText) {
  const auto messages = adopt();
  std::array<std::byte, 16> memory{};
  nccl_.next = ncclSystemError;
  const auto [code, text] = error_of([&] { messages->send(memory, 2, nullptr); });
  EXPECT_EQ(code, ErrorCode::transport);
  EXPECT_EQ(text,
            "rank 1 of 3: send (ncclSend) of 16 bytes, rank 2: a system error (ncclSystemError, 2): the cable is out; "
            "NCCL_DEBUG=WARN shows more");
  messages->begin_group();
  nccl_.next = ncclInvalidArgument;
  EXPECT_EQ(error_of([&] { messages->end_group(); }).first, ErrorCode::invalid_argument);
}

TEST_F(NcclMessagesTest, PollingTellsOfFailuresUnderWay) {
  const auto messages = adopt();
  messages->poll();
  nccl_.async = ncclInProgress;
  messages->poll();
  nccl_.async = ncclRemoteError;
  const auto [code, text] = error_of([&] { messages->poll(); });
  EXPECT_EQ(code, ErrorCode::transport);
  EXPECT_NE(text.find("a collective failed under way: an error (ncclRemoteError, 6)"), std::string::npos) << text;
}

// Mutation tried: the destructor destroys an aborted communicator, which frees it twice.
TEST_F(NcclMessagesTest, TheFirstAbortIsToldEverAfterAndEndsTheCommunicatorOnce) {
  auto messages = adopt();
  std::array<std::byte, 4> memory{};
  messages->abort(Error(ErrorCode::timeout, "rank 0 did not answer", ErrorCause::world));
  messages->abort(Error(ErrorCode::internal, "later"));
  EXPECT_EQ(nccl_.aborts, 1);
  const std::vector<std::function<void()>> uses{[&] { messages->poll(); }, [&] { messages->send(memory, 0, nullptr); },
                                                [&] { messages->receive(memory, 0, nullptr); },
                                                [&] { messages->all_reduce(memory.data(), DType::f32, 1, nullptr); },
                                                [&] { messages->begin_group(); }};
  for (const auto& use : uses) {
    EXPECT_EQ(error_of(use), (std::pair{ErrorCode::timeout, std::string("rank 0 did not answer")}));
  }
  messages.reset();
  EXPECT_EQ(nccl_.calls, Calls{});
  EXPECT_EQ(nccl_.aborts, 1);
}

// Mutation tried: abort() waits for the stuck call without a limit.
TEST_F(NcclMessagesTest, AnotherThreadAbortsACallThatIsStuck) {
  const auto messages = adopt();
  messages->begin_group();
  nccl_.stuck = true;
  std::pair<ErrorCode, std::string> error;
  std::thread caller([&] { error = error_of([&] { messages->end_group(); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  messages->abort(Error(ErrorCode::aborted, "enough", ErrorCause::world));
  caller.join();
  EXPECT_EQ(error, (std::pair{ErrorCode::aborted, std::string("enough")}));
}

// Mutation tried: abort() does not wait, and frees objects to which the open group enqueues.
TEST_F(NcclMessagesTest, AnAbortWaitsForAnOpenGroup) {
  const auto messages = adopt();
  std::array<std::byte, 4> memory{};
  messages->begin_group();
  messages->send(memory, 0, nullptr);
  std::thread other([&] { messages->abort(Error(ErrorCode::aborted, "enough", ErrorCause::world)); });
  while (error_of([&] { messages->poll(); }).second != "enough") {
    std::this_thread::yield();
  }
  EXPECT_EQ(nccl_.aborts, 0);
  EXPECT_EQ(error_of([&] { messages->send(memory, 0, nullptr); }).second, "enough");
  messages->end_group();
  other.join();
  EXPECT_EQ(nccl_.aborts, 1);
  EXPECT_EQ(nccl_.calls, (Calls{"start", "send 4 0", "end"}));
}

TEST_F(NcclMessagesTest, AnAbortOfAChildIsItsOwn) {
  const auto messages = adopt();
  const auto child = NcclMessages::over(&comm_);
  child->abort(Error(ErrorCode::internal, "only here"));
  messages->poll();
  EXPECT_EQ(error_of([&] { child->poll(); }).second, "only here");
}

}  // namespace
}  // namespace gradwire::test
