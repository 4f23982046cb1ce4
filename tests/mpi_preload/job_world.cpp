// Uses many communicators and several threads, for which a drop-in sends over one communicator. The environment sets
// the amount, so that a test can play a little and a long run much.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/mpi_preload/plain_job.hpp"

namespace job {
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Sums `count` floats on `comm`; each may differ from the exact sum as far as int8 allows. Returns the number of wrong
// elements.
int sum_on(MPI_Comm comm, int count, bool in_place) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const auto elements = static_cast<std::size_t>(count);
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = value_of(rank, i);
  }
  std::vector<float> sum = values;
  MPI_Allreduce(in_place ? MPI_IN_PLACE : values.data(), sum.data(), count, MPI_FLOAT, MPI_SUM, comm);
  int wrong = 0;
  const double bound = 2.0 * size / 254 * 1.05;
  for (std::size_t i = 0; i < elements; ++i) {
    double exact = 0;
    for (int other = 0; other < size; ++other) {
      exact += value_of(other, i);
    }
    wrong += std::fabs(sum[i] - exact) > bound ? 1 : 0;
  }
  return wrong;
}

}  // namespace

// Makes communicators one after another, uses each once and frees it.
void communicator_churn() {
  for (int i = 0; i < number("JOB_ROUNDS", 300); ++i) {
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    JOB_CHECK(sum_on(own, kCount, i % 2 == 0) == 0);
    MPI_Comm_free(&own);
  }
}

// Keeps communicators alive together, and uses all of them twice.
void communicators_alive() {
  std::vector<MPI_Comm> all(static_cast<std::size_t>(number("JOB_ALIVE", 400)));
  for (MPI_Comm& comm : all) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    JOB_CHECK(sum_on(comm, kCount, false) == 0);
  }
  for (MPI_Comm& comm : all) {
    JOB_CHECK(sum_on(comm, kCount, true) == 0);
    MPI_Comm_free(&comm);
  }
}

// Two threads each have a duplicate of their own, on which they make and free others meanwhile.
void two_threads() {
  std::vector<MPI_Comm> own(2);
  for (MPI_Comm& comm : own) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  const int sums = number("JOB_SUMS", 200);
  std::vector<int> wrong(2);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));  // the same on every rank
      constexpr std::array kCounts{1, 300, 16000, 20000, 40000};
      for (int i = 0; i < sums; ++i) {
        wrong[thread] += sum_on(own[thread], kCounts[random() % kCounts.size()], i % 2 == 0);
        if (i % 10 == 3) {
          MPI_Comm made = MPI_COMM_NULL;
          MPI_Comm_dup(own[thread], &made);
          wrong[thread] += sum_on(made, kCount, false);
          MPI_Comm_free(&made);
        }
      }
    });
  }
  for (std::size_t thread = 0; thread < 2; ++thread) {
    threads[thread].join();
    JOB_CHECK(wrong[thread] == 0);
    MPI_Comm_free(&own[thread]);
  }
}

// Prints the number of MPI calls that the drop-in makes for itself, counted by own_calls.c if that is preloaded.
void own_calls() {
  const auto count = [](const char* name) {
    auto* const function = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name));
    return function == nullptr ? 0 : function();
  };
  const int before[2] = {count("own_calls_sent"), count("own_calls_made")};
  for (int round = 0; round < 20; ++round) {
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, g_rank, &own);
    for (MPI_Comm comm : {MPI_COMM_WORLD, own}) {
      JOB_CHECK(sum_on(comm, kCount, true) == 0);
      JOB_CHECK(sum_on(comm, 10, false) == 0);
    }
    MPI_Comm_free(&own);
  }
  const int after[2] = {count("own_calls_sent"), count("own_calls_made")};
  int mine[2] = {after[0] - before[0], after[1] - before[1]};
  int all[2] = {0, 0};
  MPI_Reduce(mine, all, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (g_rank == 0) {
    std::printf("own calls: sent %d made %d\n", all[0], all[1]);
  }
}

namespace {

// The calls of one thread on its communicators, drawn from a seed that is the same on every rank.
class Calls {
 public:
  Calls(unsigned seed, std::vector<MPI_Comm> comms) : choices_(seed), comms_(std::move(comms)) {}

  int play(int calls) {
    for (int i = 0; i < calls; ++i) {
      comm_ = comms_[choices_() % comms_.size()];
      const int kind = static_cast<int>(choices_() % 15);
      random_.seed(static_cast<unsigned>(choices_()));  // ranks of a smaller part draw fewer numbers in a call
      MPI_Comm_rank(comm_, &rank_);
      MPI_Comm_size(comm_, &size_);
      call(kind);
    }
    return wrong_;
  }

 private:
  void expect(bool right) { wrong_ += right ? 0 : 1; }
  int large() { return 16384 + static_cast<int>(random_() % 8192); }

  void call(int kind) {
    switch (kind) {
      case 0: return expect(sum_on(comm_, large(), false) == 0);
      case 1: return expect(sum_on(comm_, large(), true) == 0);
      case 2: return expect(sum_on(comm_, 1 + static_cast<int>(random_() % 100), true) == 0);
      case 3: return reduce();
      case 4: return reduce_scatter();
      case 5: return reduce_scatter_block();
      case 6: return whole_numbers<double>(MPI_DOUBLE);
      case 7: return whole_numbers<int>(MPI_INT);
      case 8: return largest();
      case 9: return request(true);
      case 10: return request(false);
      case 11: return static_cast<void>(MPI_Barrier(comm_));
      case 12: return broadcast();
      case 13: return another_communicator();
      default: return ring();
    }
  }

  void reduce() {
    const int count = large();
    const int root = static_cast<int>(random_() % static_cast<unsigned>(size_));
    const std::vector<float> mine(static_cast<std::size_t>(count), 1.0F + static_cast<float>(rank_));
    std::vector<float> sum(mine.size());
    MPI_Reduce(mine.data(), sum.data(), count, MPI_FLOAT, MPI_SUM, root, comm_);
    expect(rank_ != root || near(sum));
  }
  void reduce_scatter() {
    std::vector<int> counts(static_cast<std::size_t>(size_));
    for (int& each : counts) {
      each = static_cast<int>(random_() % 20000);
    }
    int all = 0;
    for (const int each : counts) {
      all += each;
    }
    const std::vector<float> mine(static_cast<std::size_t>(all), 1.0F + static_cast<float>(rank_));
    std::vector<float> sum(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank_)]));
    MPI_Reduce_scatter(mine.data(), sum.data(), counts.data(), MPI_FLOAT, MPI_SUM, comm_);
    expect(near(sum));
  }
  void reduce_scatter_block() {
    const int each = large();
    const std::vector<float> mine(static_cast<std::size_t>(each * size_), 1.0F + static_cast<float>(rank_));
    std::vector<float> sum(static_cast<std::size_t>(each));
    MPI_Reduce_scatter_block(mine.data(), sum.data(), each, MPI_FLOAT, MPI_SUM, comm_);
    expect(near(sum));
  }
  // All values of a rank are equal, so a block of int8 represents them up to rounding.
  [[nodiscard]] bool near(const std::vector<float>& sum) const {
    const float exact = static_cast<float>(size_ * (size_ + 1)) / 2;
    return std::all_of(sum.begin(), sum.end(), [&](float value) { return std::fabs(value - exact) < 0.02F * exact; });
  }
  template <typename T>
  void whole_numbers(MPI_Datatype type) {
    const int count = large();
    std::vector<T> values(static_cast<std::size_t>(count), static_cast<T>(rank_ + 1));
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count, type, MPI_SUM, comm_);
    expect(
        std::all_of(values.begin(), values.end(), [&](T v) { return v == static_cast<T>(size_ * (size_ + 1) / 2); }));
  }
  void largest() {
    std::vector<float> values(20000, static_cast<float>(rank_));
    MPI_Allreduce(MPI_IN_PLACE, values.data(), 20000, MPI_FLOAT, MPI_MAX, comm_);
    expect(values[7] == static_cast<float>(size_ - 1));
  }
  void request(bool waits_at_once) {
    const int count = large();
    const std::vector<float> mine(static_cast<std::size_t>(count), 1.0F + static_cast<float>(rank_));
    std::vector<float> sum(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(mine.data(), sum.data(), count, MPI_FLOAT, MPI_SUM, comm_, &request);
    if (!waits_at_once) {
      expect(sum_on(comm_, large(), true) == 0);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(near(sum));
  }
  void broadcast() {
    int value = rank_ == 0 ? 4711 : 0;
    MPI_Bcast(&value, 1, MPI_INT, 0, comm_);
    expect(value == 4711);
  }
  void another_communicator() {
    MPI_Comm made = MPI_COMM_NULL;
    if (random_() % 2 == 0) {
      MPI_Comm_dup(comm_, &made);
    } else {
      MPI_Comm_split(comm_, 0, size_ - rank_, &made);
    }
    expect(sum_on(made, large(), false) == 0);
    MPI_Comm_free(&made);
  }
  void ring() {
    int got = -1;
    const int to = (rank_ + 1) % size_;
    const int from = (rank_ + size_ - 1) % size_;
    MPI_Sendrecv(&rank_, 1, MPI_INT, to, 5, &got, 1, MPI_INT, from, 5, comm_, MPI_STATUS_IGNORE);
    expect(got == from);
  }

  std::mt19937 choices_;  // the same on every rank
  std::mt19937 random_;   // for one call
  std::vector<MPI_Comm> comms_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int wrong_ = 0;
};

}  // namespace

// Runs programs of 15 kinds of calls on four communicators, two for each of two threads, from one seed after another.
void random_programs() {
  std::vector<MPI_Comm> comms(4);
  MPI_Comm_dup(MPI_COMM_WORLD, comms.data());
  MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &comms[1]);
  MPI_Comm_dup(comms[0], &comms[2]);
  MPI_Comm_split(MPI_COMM_WORLD, 0, g_size - g_rank, &comms[3]);
  const int first = number("JOB_FIRST_SEED", 1);
  const int seeds = number("JOB_SEEDS", 20);
  for (int seed = first; seed < first + seeds; ++seed) {
    std::vector<int> wrong(2);
    const auto play = [&](unsigned thread) {
      wrong[thread] = Calls(static_cast<unsigned>(seed) * 2 + thread, {comms[2 * thread], comms[2 * thread + 1]})
                          .play(number("JOB_CALLS", 20));
    };
    std::thread other(play, 1U);
    play(0);
    other.join();
    if (wrong[0] + wrong[1] != 0) {
      std::printf("[rank %d] seed %d: %d and %d wrong\n", g_rank, seed, wrong[0], wrong[1]);
      ++g_failures;
    }
  }
  for (MPI_Comm& comm : comms) {
    MPI_Comm_free(&comm);
  }
}

}  // namespace job
