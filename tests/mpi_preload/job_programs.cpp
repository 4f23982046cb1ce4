// Programs whose results a drop-in that was not asked to compress must not change, to the last bit: three solvers that
// fail if sums are rounded. Each prints a hash of the results of all ranks; job_functions.cpp has two more. Under codec
// = "auto", calls of equal size on one communicator are compared together, so two of the programs have a duplicate of
// the world: then each of them makes trials.
#include <cmath>

#include "tests/mpi_preload/job_hash.hpp"

namespace job {
namespace {

// A symmetric matrix as in finite elements. Its elements are distributed over the ranks, so a product is a sum over
// ranks, to whose entries each of them contributes.
class Springs {
 public:
  explicit Springs(std::size_t unknowns) : stiffness_(unknowns - 1), product_(unknowns) {
    for (std::size_t i = 0; i < stiffness_.size(); ++i) {
      stiffness_[i] = 1.0F + 0.5F * value_of(100, i);
    }
  }

  const std::vector<float>& times(const std::vector<float>& vector) {
    const auto ranks = static_cast<std::size_t>(g_size);
    std::fill(product_.begin(), product_.end(), 0.0F);
    for (auto i = static_cast<std::size_t>(g_rank); i < stiffness_.size(); i += ranks) {
      const float force = stiffness_[i] * (vector[i] - vector[i + 1]);
      product_[i] += force;
      product_[i + 1] -= force;
    }
    for (auto i = static_cast<std::size_t>(g_rank); i < vector.size(); i += ranks) {
      product_[i] += 0.3F * vector[i];
    }
    MPI_Allreduce(MPI_IN_PLACE, product_.data(), static_cast<int>(product_.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return product_;
  }

 private:
  std::vector<float> stiffness_;
  std::vector<float> product_;
};

// Each rank multiplies its part of the vectors.
float dot(const std::vector<float>& a, const std::vector<float>& b) {
  const auto ranks = static_cast<std::size_t>(g_size);
  const auto rank = static_cast<std::size_t>(g_rank);
  float mine = 0;
  for (std::size_t i = a.size() * rank / ranks; i < a.size() * (rank + 1) / ranks; ++i) {
    mine += a[i] * b[i];
  }
  float sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void add_times(std::vector<float>& to, float factor, const std::vector<float>& vector) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] += factor * vector[i];
  }
}

// Turns the lower triangle into the factor. Returns false if a pivot is not positive.
bool factorise(std::vector<float>& matrix, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    float pivot = matrix[j * n + j];
    for (std::size_t k = 0; k < j; ++k) {
      pivot -= matrix[j * n + k] * matrix[j * n + k];
    }
    if (!(pivot > 0)) {
      return false;
    }
    const float root = std::sqrt(pivot);
    matrix[j * n + j] = root;
    for (std::size_t i = j + 1; i < n; ++i) {
      float value = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) {
        value -= matrix[i * n + k] * matrix[j * n + k];
      }
      matrix[i * n + j] = value / root;
    }
  }
  return true;
}

// Returns the index of the centre that is nearest to `point`.
int nearest(const float* point, const std::vector<float>& centres, std::size_t dimensions) {
  int best = 0;
  float least = INFINITY;
  for (std::size_t centre = 0; centre < centres.size() / dimensions; ++centre) {
    float distance = 0;
    for (std::size_t i = 0; i < dimensions; ++i) {
      const float difference = point[i] - centres[centre * dimensions + i];
      distance += difference * difference;
    }
    if (distance < least) {
      least = distance;
      best = static_cast<int>(centre);
    }
  }
  return best;
}

}  // namespace

// Runs conjugate gradients: the number of iterations shows at once if products are rounded.
void solver() {
  constexpr std::size_t kUnknowns = 20000;
  constexpr int kMostIterations = 200;
  Springs matrix(kUnknowns);
  const std::vector<float> wanted = values_of(101, kUnknowns);
  std::vector<float> found(kUnknowns);
  std::vector<float> residual = matrix.times(wanted);
  std::vector<float> direction = residual;
  float square = dot(residual, residual);
  const float enough = 1e-10F * square;
  int iterations = 0;
  for (; iterations < kMostIterations && square > enough; ++iterations) {
    const std::vector<float>& product = matrix.times(direction);
    const float step = square / dot(direction, product);
    add_times(found, step, direction);
    add_times(residual, -step, product);
    const float before = square;
    square = dot(residual, residual);
    for (std::size_t i = 0; i < kUnknowns; ++i) {
      direction[i] = residual[i] + square / before * direction[i];
    }
  }
  float error = 0;
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    error = std::max(error, std::fabs(found[i] - wanted[i]));
  }
  JOB_CHECK(iterations < kMostIterations);
  JOB_CHECK(error < 1e-3F);
  Hash hash;
  hash.add(found);
  hash.add(&iterations, 1);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("solver: %d iterations, error %.3g, hash %llu\n", iterations, static_cast<double>(error), of_all);
  }
}

// Factorises Gram matrices of nearly equal columns, which fails if the sum is rounded.
void gram() {
  constexpr std::size_t kColumns = 160;
  constexpr std::size_t kRows = 150;  // rows on each rank
  constexpr int kRounds = 12;
  int factorised = 0;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  Hash hash;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> rows = values_of(g_rank + 10 * round, kRows * kColumns);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = value_of(g_rank + 10 * round + 1000, i / kColumns) + 0.05F * rows[i];
    }
    std::vector<float> mine(kColumns * kColumns);
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* values = rows.data() + row * kColumns;
      for (std::size_t i = 0; i < kColumns; ++i) {
        for (std::size_t j = 0; j < kColumns; ++j) {
          mine[i * kColumns + j] += values[i] * values[j];
        }
      }
    }
    std::vector<float> sum(mine.size());
    MPI_Allreduce(mine.data(), sum.data(), static_cast<int>(sum.size()), MPI_FLOAT, MPI_SUM, comm);
    factorised += factorise(sum, kColumns) ? 1 : 0;
    hash.add(sum);
  }
  MPI_Comm_free(&comm);
  JOB_CHECK(factorised == kRounds);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("gram: %d of %d factorised, hash %llu\n", factorised, kRounds, of_all);
  }
}

// Runs K-means from the first points of rank 0, in a fixed number of rounds.
void clusters() {
  constexpr std::size_t kCentres = 64;
  constexpr std::size_t kDimensions = 300;
  constexpr std::size_t kPoints = 500;  // points on each rank
  constexpr int kRounds = 10;
  const std::vector<float> points = values_of(g_rank + 200, kPoints * kDimensions);
  std::vector<float> centres(points.begin(), points.begin() + kCentres * kDimensions);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Bcast(centres.data(), static_cast<int>(centres.size()), MPI_FLOAT, 0, comm);
  std::vector<int> labels(kPoints);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> sums(centres.size());
    std::vector<int> counts(kCentres);
    for (std::size_t point = 0; point < kPoints; ++point) {
      const float* values = points.data() + point * kDimensions;
      labels[point] = nearest(values, centres, kDimensions);
      const auto centre = static_cast<std::size_t>(labels[point]);
      ++counts[centre];
      for (std::size_t i = 0; i < kDimensions; ++i) {
        sums[centre * kDimensions + i] += values[i];
      }
    }
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_FLOAT, MPI_SUM, comm);
    MPI_Allreduce(MPI_IN_PLACE, counts.data(), static_cast<int>(counts.size()), MPI_INT, MPI_SUM, comm);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const int count = counts[i / kDimensions];
      centres[i] = count > 0 ? sums[i] / static_cast<float>(count) : centres[i];
    }
  }
  MPI_Comm_free(&comm);
  Hash hash;
  hash.add(labels);
  hash.add(centres);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("clusters: hash %llu\n", of_all);
  }
}

}  // namespace job
