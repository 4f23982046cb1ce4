// Random programs of blocking and nonblocking sums on several communicators, with every way to complete a request. The
// correct result is known, so a run with the preload is compared with one under MPI alone.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

constexpr int kComms = 2;  // communicators per thread

// One sum. Its buffers stay in place until the end of the program.
struct Sum {
  int kind = 0;  // all-reduce, reduce-scatter in blocks, reduce-scatter
  std::size_t count = 0;
  bool in_place = false;
  bool integers = false;
  bool dropped = false;  // its request is freed at once
  std::vector<float> send, receive;
  std::vector<int> int_send, int_receive;
  std::vector<int> counts;
  std::size_t first = 0, own = 0;  // range of the result
  MPI_Request request = MPI_REQUEST_NULL;
};

class Program {
 public:
  Program(unsigned seed, std::vector<MPI_Comm> comms)
      : comms_(std::move(comms)), shared_(seed), own_(seed * 7919U + static_cast<unsigned>(g_rank)) {}

  void run() {
    for (int part = 0; part < 3; ++part) {
      post_some();
      complete_some();
      auto sum = make_sum();  // while others are pending
      sum->kind = 0;
      sum->in_place = true;
      sum->integers = false;
      prepare(*sum);
      MPI_Allreduce(MPI_IN_PLACE, sum->receive.data(), static_cast<int>(sum->count), MPI_FLOAT, MPI_SUM,
                    comms_[shared_() % comms_.size()]);
      check(*sum);
    }
    std::vector<MPI_Request> left;
    for (const auto& sum : out_) {
      left.push_back(sum->request);
    }
    MPI_Waitall(static_cast<int>(left.size()), left.data(), MPI_STATUSES_IGNORE);
    for (const auto& sum : out_) {
      check(*sum);
    }
  }
  std::vector<std::unique_ptr<Sum>> dropped_;
  int failures = 0;

 private:
  std::unique_ptr<Sum> make_sum() {
    static constexpr std::size_t kCounts[] = {1, 300, 1100, 5000, 20000};
    auto sum = std::make_unique<Sum>();
    sum->kind = static_cast<int>(shared_() % 3);
    sum->count = kCounts[shared_() % 5];
    sum->in_place = shared_() % 2 == 0;
    sum->integers = shared_() % 5 == 0;
    // MPI forbids that for its own collective requests, and allows it for generalized ones, which sums above the floor
    // have.
    sum->dropped = frees_ && !sum->integers && sum->count >= 20000 && shared_() % 2 == 0;
    return sum;
  }

  void prepare(Sum& sum) {
    const auto size = static_cast<std::size_t>(g_size);
    const auto self = static_cast<std::size_t>(g_rank);
    std::size_t all = sum.count;
    sum.own = sum.count;
    if (sum.kind == 1) {
      all = sum.count * size;
      sum.first = sum.count * self;
    } else if (sum.kind == 2) {  // rank 0 gets nothing, and the last rank also gets its share
      all = sum.count * size;
      sum.counts.assign(size, static_cast<int>(sum.count));
      sum.counts.front() = 0;
      sum.counts.back() += static_cast<int>(sum.count);
      sum.own = static_cast<std::size_t>(sum.counts[self]);
      sum.first = self == 0 ? 0 : sum.count * (self - 1);
    }
    sum.send = values_of(g_rank, all);
    sum.receive = sum.in_place ? sum.send : std::vector<float>(sum.own + 1, -7);
    sum.int_send = ramp<int>(all);
    sum.int_receive = sum.in_place ? sum.int_send : std::vector<int>(sum.own + 1, -7);
  }

  void start(Sum& sum, MPI_Comm comm) {
    prepare(sum);
    MPI_Datatype type = sum.integers ? MPI_INT : MPI_FLOAT;
    const void* data = sum.integers ? static_cast<const void*>(sum.int_send.data()) : sum.send.data();
    const void* send = sum.in_place ? MPI_IN_PLACE : data;
    void* receive = sum.integers ? static_cast<void*>(sum.int_receive.data()) : sum.receive.data();
    const int count = static_cast<int>(sum.count);
    if (sum.kind == 0) {
      MPI_Iallreduce(send, receive, count, type, MPI_SUM, comm, &sum.request);
    } else if (sum.kind == 1) {
      MPI_Ireduce_scatter_block(send, receive, count, type, MPI_SUM, comm, &sum.request);
    } else {
      MPI_Ireduce_scatter(send, receive, sum.counts.data(), type, MPI_SUM, comm, &sum.request);
    }
  }

  // Posts the sums of each communicator in the same order on all ranks, and the communicators in any order.
  void post_some() {
    std::vector<std::vector<std::unique_ptr<Sum>>> waiting(comms_.size());
    std::size_t left = 0;
    for (auto& sums : waiting) {
      for (unsigned i = shared_() % 4; i > 0; --i, ++left) {
        sums.push_back(make_sum());
      }
    }
    std::vector<std::size_t> next(comms_.size(), 0);
    while (left > 0) {
      const std::size_t comm = own_() % comms_.size();
      if (next[comm] == waiting[comm].size()) {
        continue;
      }
      auto& sum = waiting[comm][next[comm]++];
      start(*sum, comms_[comm]);
      --left;
      if (sum->dropped) {
        MPI_Request_free(&sum->request);
        dropped_.push_back(std::move(sum));
      } else {
        out_.push_back(std::move(sum));
      }
    }
  }

  // Completes some pending requests in one way.
  void complete_some() {
    std::shuffle(out_.begin(), out_.end(), own_);
    const auto count = static_cast<int>(out_.empty() ? 0 : own_() % (out_.size() + 1));
    std::vector<MPI_Request> requests(static_cast<std::size_t>(count) + 1, MPI_REQUEST_NULL);  // and one null request
    for (int i = 0; i < count; ++i) {
      requests[static_cast<std::size_t>(i)] = out_[static_cast<std::size_t>(i)]->request;
    }
    wait_for(requests, count, own_() % 8);
    for (int i = 0; i < count; ++i) {
      failures += requests[static_cast<std::size_t>(i)] == MPI_REQUEST_NULL ? 0 : 1;
      check(*out_[static_cast<std::size_t>(i)]);
    }
    out_.erase(out_.begin(), out_.begin() + count);
  }

  static void wait_for(std::vector<MPI_Request>& requests, int count, unsigned way) {
    const auto all = static_cast<int>(requests.size());
    std::vector<int> indices(requests.size());
    int flag = 0;
    int index = 0;
    int done = 0;
    switch (way) {
      case 0: MPI_Waitall(all, requests.data(), MPI_STATUSES_IGNORE); break;
      case 1:
        for (MPI_Request& request : requests) {
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        break;
      case 2:
        for (int i = 0; i < count; ++i) {
          MPI_Waitany(all, requests.data(), &index, MPI_STATUS_IGNORE);
        }
        break;
      case 3:
        for (int i = 0; i < count; i += std::max(done, 0)) {
          MPI_Waitsome(all, requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE);
        }
        break;
      case 4:
        while (flag == 0) {
          MPI_Testall(all, requests.data(), &flag, MPI_STATUSES_IGNORE);
        }
        break;
      case 5:
        for (int i = 0; i < count; i += flag) {
          MPI_Testany(all, requests.data(), &index, &flag, MPI_STATUS_IGNORE);
        }
        break;
      case 6:
        for (int i = 0; i < count; i += std::max(done, 0)) {
          MPI_Testsome(all, requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE);
        }
        break;
      default:
        for (MPI_Request& request : requests) {
          MPI_Status status;
          for (flag = 0; flag == 0 && request != MPI_REQUEST_NULL;) {
            MPI_Request_get_status(request, &flag, &status);
          }
          for (flag = 0; flag == 0;) {
            MPI_Test(&request, &flag, &status);
          }
        }
    }
  }

  void check(const Sum& sum) {
    const double bound = 2.0 * g_size / 254 * 1.05;
    for (std::size_t i = 0; i < sum.own; ++i) {
      const bool right = sum.integers ? sum.int_receive[i] == ramp_sum<int>(sum.first + i)
                                      : std::fabs(sum.receive[i] - sum_at(sum.first + i, g_size)) <= bound;
      if (!right) {
        std::printf("[rank %d] kind %d, count %zu, %s: element %zu is wrong\n", g_rank, sum.kind, sum.count,
                    sum.integers ? "integers" : "floats", i);
        ++failures;
        return;
      }
    }
    if (!sum.in_place) {
      failures += sum.integers ? sum.int_receive[sum.own] != -7 : sum.receive[sum.own] != -7;
    }
  }

  std::vector<MPI_Comm> comms_;
  bool frees_ = std::getenv("JOB_FREES") != nullptr;
  std::mt19937 shared_;
  std::mt19937 own_;
  std::vector<std::unique_ptr<Sum>> out_;
};

int run_programs(unsigned thread, std::vector<MPI_Comm> comms) {
  int failures = 0;
  std::vector<std::unique_ptr<Sum>> dropped;
  const char* given = std::getenv("JOB_SEEDS");
  const unsigned seeds = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 25;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Program program(2 * seed + thread, comms);
    program.run();
    failures += program.failures;
    for (auto& sum : program.dropped_) {
      dropped.push_back(std::move(sum));
    }
    if (program.failures > 0) {
      std::printf("[rank %d] wrong in seed %u\n", g_rank, 2 * seed + thread);
    }
  }
  for (MPI_Comm& comm : comms) {
    MPI_Comm_free(&comm);
  }
  return failures;
}

}  // namespace

void request_programs() {
  int level = 0;
  MPI_Query_thread(&level);
  const unsigned threads = level == MPI_THREAD_MULTIPLE ? 2 : 1;
  std::vector<std::vector<MPI_Comm>> comms(threads, std::vector<MPI_Comm>(kComms));
  for (auto& of : comms) {
    for (MPI_Comm& comm : of) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      // After a request that could be compressed and a blocking reduction, the ranks have agreed about requests.
      std::vector<float> values(kCount, 1.0F);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      int one = 1;
      MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm);
      JOB_CHECK(one == g_size);
    }
  }
  std::vector<int> failures(threads);
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] { failures[thread] = run_programs(thread, comms[thread]); });
  }
  failures[0] = run_programs(0, comms[0]);
  for (std::thread& other : others) {
    other.join();
  }
  for (const int of : failures) {
    g_failures += of;
  }
}

// A rank posts its part only after a message from another rank that has posted: a call that returns a request must not
// wait for other ranks.
void pipeline() {
  std::vector<float> values = values_of(g_rank, kCount);
  MPI_Request request = MPI_REQUEST_NULL;
  int token = 0;
  if (g_rank > 0) {
    MPI_Recv(&token, 1, MPI_INT, g_rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  std::vector<float> more = values_of(g_rank, kCount);
  MPI_Request second = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, more.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &second);
  if (g_rank + 1 < g_size) {
    MPI_Send(&token, 1, MPI_INT, g_rank + 1, 0, MPI_COMM_WORLD);
  }
  MPI_Wait(&second, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  compare(values.data(), 0, kCount, g_size);
  compare(more.data(), 0, kCount, g_size);
}

// Each rank has one core for all its threads. The test also times blocking calls, which other programs of the machine
// slow down too.
void requests_on_a_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(g_rank), &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) != 0) {
    std::printf("no core %d\n", g_rank);
    return;
  }
  constexpr int kCalls = 20;
  constexpr int kMostRounds = 200;  // on a busy machine only a few rounds have the cores to themselves
  std::vector<float> values(20000, 0);
  double best = 1;
  double best_blocking = 1;
  int late = 1;  // on any rank
  for (int round = 0; late != 0 && round < kMostRounds; ++round) {
    double begin = MPI_Wtime();
    for (int i = 0; i < kCalls; ++i) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(MPI_IN_PLACE, values.data(), 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    best = std::min(best, (MPI_Wtime() - begin) / kCalls);
    begin = MPI_Wtime();
    for (int i = 0; i < kCalls; ++i) {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    best_blocking = std::min(best_blocking, (MPI_Wtime() - begin) / kCalls);
    late = best < 30 * best_blocking ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &late, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  std::printf("[rank %d] %.3f ms a call, %.3f ms blocking\n", g_rank, best * 1e3, best_blocking * 1e3);
  g_failures += late;
}

// One rank leaves while the others wait for its part.
void requests_given_up() {
  std::vector<float> values = values_of(g_rank, kCount);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (g_rank == 1) {
    std::this_thread::sleep_for(std::chrono::minutes(2));
  }
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

}  // namespace job
