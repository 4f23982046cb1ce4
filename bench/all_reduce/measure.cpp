#include "bench/all_reduce/measure.hpp"

#include <mpi.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <thread>

#include "bench/all_reduce/process.hpp"
#include "bench/support/inputs.hpp"

namespace gradwire::bench {
namespace {

constexpr int kBlockIterations = 5;  // calls of one contender before the next one's turn

double reduce(double value, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
  return value;
}

std::vector<double> reduce(std::vector<double> values, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, op, MPI_COMM_WORLD);
  return values;
}

// Ranks that wait inside MPI_Barrier spin; on a machine with more ranks than cores they take time from those that still
// work. So they first wait with sleeps; the second, short barrier makes them go on together.
void barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// This rank's input, and the exact sum over all ranks of one slice. Each rank checks its own slice; since the results
// of all ranks must be equal, this checks every element.
class Problem {
 public:
  Problem(std::uint64_t bytes, Placement placement)
      : buffers_(placement, bytes), input_(buffers_.send(), bytes / 4), output_(buffers_.receive(), bytes / 4) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fill_gradient(rank, 0, input_);
    const std::uint64_t share = input_.size() / static_cast<std::uint64_t>(ranks);
    first_ = share * static_cast<std::uint64_t>(rank);
    exact_.assign(rank + 1 == ranks ? input_.size() - first_ : share, 0.0);
    std::vector<float> one(exact_.size());
    for (int other = 0; other < ranks; ++other) {
      fill_gradient(other, first_, one);
      for (std::size_t i = 0; i < one.size(); ++i) {
        exact_[i] += one[i];
      }
    }
  }

  [[nodiscard]] std::span<const float> input() const { return input_; }
  [[nodiscard]] std::span<float> output() { return output_; }
  // Overwrites the output, so that an all-reduce that does nothing gives a wrong result.
  void spoil_output() { std::fill(output_.begin(), output_.end(), NAN); }

  [[nodiscard]] double relative_error() const {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < exact_.size(); ++i) {
      const double difference = output_[first_ + i] - exact_[i];
      error += difference * difference;
      norm += exact_[i] * exact_[i];
    }
    const auto sums = reduce(std::vector<double>{error, norm}, MPI_SUM);
    return sums[1] > 0 ? std::sqrt(sums[0] / sums[1]) : std::sqrt(sums[0]);
  }

  [[nodiscard]] bool ranks_equal() const {
    const std::uint64_t hash = XXH3_64bits(output_.data(), output_.size_bytes());
    std::uint64_t least = 0, greatest = 0;
    MPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&hash, &greatest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return least == greatest;
  }

 private:
  Buffers buffers_;
  std::span<float> input_, output_;
  std::uint64_t first_ = 0;
  std::vector<double> exact_;
};

// Makes untimed calls. The first one measures peak memory and checks the result.
void warm_up(Contender& contender, Problem& problem, int calls, Measurement& result) {
  for (int call = 0; call < calls; ++call) {
    problem.spoil_output();
    barrier();
    const PeakMemory memory;
    contender.all_reduce(problem.input(), problem.output());
    if (call == 0) {
      result.extra_memory = reduce(memory.bytes(), MPI_MAX);
      result.relative_error = problem.relative_error();
      result.ranks_equal = problem.ranks_equal();
    }
  }
}

void run_block(Contender& contender, Problem& problem, const Options& options, int calls, Measurement& result) {
  std::vector<double> seconds, cpu;
  double sent = 0, left = NAN;
  for (int call = 0; call < calls; ++call) {
    barrier();
    const double interface_before = interface_bytes_sent(options.interface);
    const double cpu_before = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    sent = static_cast<double>(contender.all_reduce(problem.input(), problem.output()));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    cpu.push_back(cpu_seconds() - cpu_before);
    left = interface_bytes_sent(options.interface) - interface_before;
  }
  barrier();
  seconds = reduce(std::move(seconds), MPI_MAX);
  cpu = reduce(std::move(cpu), MPI_SUM);
  result.seconds.insert(result.seconds.end(), seconds.begin(), seconds.end());
  result.cpu_seconds.insert(result.cpu_seconds.end(), cpu.begin(), cpu.end());
  result.bytes_sent = reduce(sent, MPI_MAX);
  result.interface_bytes = reduce(left, MPI_MAX);
}

}  // namespace

std::vector<Measurement> measure(const std::vector<ContenderRecipe>& recipes, const Options& options,
                                 std::uint64_t bytes) {
  Problem problem(bytes, options.placement);
  std::vector<std::unique_ptr<Contender>> contenders;
  std::vector<Measurement> results(recipes.size());
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    contenders.push_back(recipes[i].make());
    warm_up(*contenders[i], problem, options.warmup, results[i]);
  }
  for (int done = 0, round = 0; done < options.iterations; done += kBlockIterations, ++round) {
    const int calls = std::min(kBlockIterations, options.iterations - done);
    for (std::size_t place = 0; place < recipes.size(); ++place) {
      const std::size_t i = round % 2 == 0 ? place : recipes.size() - 1 - place;  // no fixed order of contenders
      problem.spoil_output();
      run_block(*contenders[i], problem, options, calls, results[i]);
      results[i].ranks_equal = results[i].ranks_equal && problem.ranks_equal();
    }
  }
  return results;
}

}  // namespace gradwire::bench
