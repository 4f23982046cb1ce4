// Programs whose results a drop-in that was not asked to compress must leave as they are, to the last bit: three
// solvers that lose their way where sums are rounded, OSU's own check, and every call that a drop-in takes. Each prints
// a hash of the results of all ranks. Under codec = "auto" calls of equal size on one communicator are compared
// together, so two of the programs have a duplicate of the world: then trials are made in each of them.
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include "tests/mpi_preload/job.hpp"

namespace job {
namespace {

class Hash {
 public:
  template <typename T>
  void add(const T* values, std::size_t count) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    for (std::size_t i = 0; i < count * sizeof(T); ++i) {
      value_ = (value_ ^ bytes[i]) * 1099511628211U;
    }
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size());
  }

  // One value that all ranks' hashes went into, on rank 0.
  [[nodiscard]] unsigned long long of_all_ranks() const {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(g_size));
    MPI_Gather(&value_, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    Hash whole;
    whole.add(all);
    return whole.value_;
  }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

// A symmetric matrix as finite elements have it. Its elements are dealt out to the ranks, so a product is a sum over
// ranks, to whose entries each of them adds something.
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

// The lower triangle becomes the factor. False where a pivot is not positive.
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

// Which of the centres is the nearest to `point`.
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

// What a call of any of the functions is given.
struct Arguments {
  const void* send;
  void* receive;
  const int* counts;  // of each rank, where the result is scattered
  int count;          // of the whole input; of a rank's segment where these are equal
  MPI_Datatype type;
  MPI_Op op;
  int root;
  MPI_Comm comm;
};

enum class Result : std::uint8_t { everywhere, at_root, segments, equal_segments };

struct Function {
  const char* name;
  Result result;
  bool of_osu;
  int (*call)(const Arguments&);
};

int wait_for(int started, MPI_Request request) {
  const int waited = MPI_Wait(&request, MPI_STATUS_IGNORE);
  return started != MPI_SUCCESS ? started : waited;
}

#if MPI_VERSION >= 4
int start_twice(int made, MPI_Request request) {
  // The second start reads what the first has left: in place that is its sum.
  for (int i = 0; i < 2 && made == MPI_SUCCESS; ++i) {
    made = MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Request_free(&request);
  return made;
}

std::vector<MPI_Count> wide(const Arguments& a) {
  int size = 0;
  MPI_Comm_size(a.comm, &size);
  return {a.counts, a.counts + size};
}
#endif

constexpr Function kFunctions[] = {
    {"MPI_Allreduce", Result::everywhere, true,
     [](const Arguments& a) { return MPI_Allreduce(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Reduce", Result::at_root, true,
     [](const Arguments& a) { return MPI_Reduce(a.send, a.receive, a.count, a.type, a.op, a.root, a.comm); }},
    {"MPI_Reduce_scatter", Result::segments, true,
     [](const Arguments& a) { return MPI_Reduce_scatter(a.send, a.receive, a.counts, a.type, a.op, a.comm); }},
    {"MPI_Reduce_scatter_block", Result::equal_segments, true,
     [](const Arguments& a) { return MPI_Reduce_scatter_block(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Iallreduce", Result::everywhere, true,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Iallreduce(a.send, a.receive, a.count, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
    {"MPI_Ireduce_scatter", Result::segments, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Ireduce_scatter(a.send, a.receive, a.counts, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
    {"MPI_Ireduce_scatter_block", Result::equal_segments, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Ireduce_scatter_block(a.send, a.receive, a.count, a.type, a.op, a.comm, &request);
       return wait_for(code, request);
     }},
#if MPI_VERSION >= 4
    {"MPI_Allreduce_c", Result::everywhere, false,
     [](const Arguments& a) { return MPI_Allreduce_c(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Reduce_c", Result::at_root, false,
     [](const Arguments& a) { return MPI_Reduce_c(a.send, a.receive, a.count, a.type, a.op, a.root, a.comm); }},
    {"MPI_Reduce_scatter_c", Result::segments, false,
     [](const Arguments& a) { return MPI_Reduce_scatter_c(a.send, a.receive, wide(a).data(), a.type, a.op, a.comm); }},
    {"MPI_Reduce_scatter_block_c", Result::equal_segments, false,
     [](const Arguments& a) { return MPI_Reduce_scatter_block_c(a.send, a.receive, a.count, a.type, a.op, a.comm); }},
    {"MPI_Allreduce_init", Result::everywhere, false,
     [](const Arguments& a) {
       MPI_Request request = MPI_REQUEST_NULL;
       const int code = MPI_Allreduce_init(a.send, a.receive, a.count, a.type, a.op, a.comm, MPI_INFO_NULL, &request);
       return start_twice(code, request);
     }},
#endif
};

// One call of `function` on `comm`, and what it is to be compared by: the input after it, the result, the error code.
template <typename T>
class Call {
 public:
  Call(const Function& function, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
      : function_(function), type_(type), op_(op), root_(root), comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }

  // `elements`: of the input, or more where segments are equal. Returns how many.
  std::size_t deal(std::size_t elements) {
    const auto ranks = static_cast<std::size_t>(size_);
    counts_.assign(ranks, static_cast<int>(elements / ranks));
    for (std::size_t i = 0; i < elements % ranks; ++i) {
      ++counts_[i];
    }
    if (function_.result == Result::equal_segments) {
      std::fill(counts_.begin(), counts_.end(), counts_[0]);
    }
    return static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.end(), 0));
  }

  void make(std::vector<T> input, bool in_place) {
    input_ = std::move(input);
    const auto own = static_cast<std::size_t>(counts_[static_cast<std::size_t>(rank_)]);
    const bool scattered = function_.result == Result::segments || function_.result == Result::equal_segments;
    const bool has_result = function_.result != Result::at_root || rank_ == root_;
    const bool from_result = in_place && has_result;
    result_ = from_result ? input_ : std::vector<T>(!has_result ? 0 : (scattered ? own : input_.size()), T{5});
    code_ = function_.call(
        {.send = from_result ? MPI_IN_PLACE : input_.data(),
         .receive = has_result ? result_.data() : nullptr,
         .counts = counts_.data(),
         .count = function_.result == Result::equal_segments ? counts_[0] : static_cast<int>(input_.size()),
         .type = type_,
         .op = op_,
         .root = root_,
         .comm = comm_});
    first_ = scattered ? static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.begin() + rank_, 0)) : 0;
    if (scattered) {
      result_.resize(own);  // What lies behind it after a call in place is the library's own affair.
    }
  }

  // Element i of the result is element first() + i of the sum.
  [[nodiscard]] const std::vector<T>& result() const { return result_; }
  [[nodiscard]] std::size_t first() const { return first_; }
  void into(Hash& hash) const {
    hash.add(input_);
    hash.add(result_);
    hash.add(&code_, 1);
  }

 private:
  const Function& function_;
  MPI_Datatype type_;
  MPI_Op op_;
  int root_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1, code_ = 0;
  std::vector<int> counts_;
  std::vector<T> input_, result_;
  std::size_t first_ = 0;
};

// MPICH 4.0.2 itself crashes where a rank other than the first gets a sum in its place.
bool crashes_in_mpich([[maybe_unused]] const Function& function, [[maybe_unused]] bool in_place,
                      [[maybe_unused]] int root) {
#ifdef MPICH_VERSION
  return function.result == Result::at_root && in_place && root > 0;
#else
  return false;
#endif
}

// Sums and maxima of one type by every function, in place and not, for the first and the last rank.
template <typename T>
void call_each(MPI_Datatype type, MPI_Comm comm, Hash& hash) {
  constexpr std::size_t kElements = 40001;  // above the floor in any type, and no multiple of the number of ranks
  int size = 1;
  MPI_Comm_size(comm, &size);
  for (const Function& function : kFunctions) {
    const int roots = function.result == Result::at_root && size > 1 ? 2 : 1;
    for (int root = 0; root < roots; ++root) {
      for (const bool in_place : {false, true}) {
        if (crashes_in_mpich(function, in_place, root)) {
          continue;
        }
        for (MPI_Op op : {MPI_SUM, MPI_MAX}) {
          Call<T> call(function, type, op, root * (size - 1), comm);
          std::vector<T> input(call.deal(kElements));
          for (std::size_t i = 0; i < input.size(); ++i) {
            input[i] = static_cast<T>((std::is_integral_v<T> ? 1000.0F : 1.0F) * value_of(g_rank, i));
          }
          call.make(std::move(input), in_place);
          call.into(hash);
        }
      }
    }
  }
}

// What osu_allreduce -c and its like send, and expect of `size` ranks.
float osu_value(std::size_t i, int iteration) { return static_cast<float>((i % 100 + 1) * (iteration + 1U)); }

std::size_t osu_errors(const Function& function, std::size_t elements, bool in_place, int root, int iteration,
                       Hash& hash) {
  Call<float> call(function, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  std::vector<float> input(call.deal(elements));
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = osu_value(i, iteration);
  }
  call.make(std::move(input), in_place);
  call.into(hash);
  std::size_t errors = 0;
  for (std::size_t i = 0; i < call.result().size(); ++i) {
    const float expected = osu_value(call.first() + i, iteration) * static_cast<float>(g_size);
    errors += call.result()[i] == expected ? 0U : 1U;
  }
  return errors;
}

}  // namespace

// Conjugate gradients: how many iterations it takes is seen at once where products are rounded.
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

// Gram matrices of columns that are alike: their factorisation fails where the sum is rounded.
void gram() {
  constexpr std::size_t kColumns = 160;
  constexpr std::size_t kRows = 150;  // of each rank
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

// K-means from the first points of rank 0, in a fixed number of rounds.
void clusters() {
  constexpr std::size_t kCentres = 64;
  constexpr std::size_t kDimensions = 300;
  constexpr std::size_t kPoints = 500;  // of each rank
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

// Every element of every sum, from 4 bytes to 1 MiB.
void osu() {
  constexpr int kIterations = 2;
  std::size_t errors = 0;
  Hash hash;
  for (const Function& function : kFunctions) {
    if (!function.of_osu) {
      continue;
    }
    std::size_t of_function = 0;
    for (std::size_t elements = 1; elements <= std::size_t{1} << 18; elements *= 8) {
      for (int root = 0; root < (function.result == Result::at_root ? 2 : 1); ++root) {
        for (const bool in_place : {false, true}) {
          for (int i = 0; i < kIterations && !crashes_in_mpich(function, in_place, root); ++i) {
            of_function += osu_errors(function, elements, in_place, root * (g_size - 1), i, hash);
          }
        }
      }
    }
    if (of_function != 0) {
      std::printf("[rank %d] %s: %zu elements are wrong\n", g_rank, function.name, of_function);
    }
    errors += of_function;
  }
  JOB_CHECK(errors == 0);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("osu: hash %llu\n", of_all);
  }
}

// A call of each kind, on all ranks, and on the two parts of a world of three.
void each_call() {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, g_rank == 1 ? 1 : 0, g_rank, &part);
  Hash hash;
  for (MPI_Comm comm : {MPI_COMM_WORLD, part}) {
    call_each<float>(MPI_FLOAT, comm, hash);
    call_each<double>(MPI_DOUBLE, comm, hash);
    call_each<int>(MPI_INT, comm, hash);
  }
  MPI_Comm_free(&part);
  const unsigned long long of_all = hash.of_all_ranks();
  if (g_rank == 0) {
    std::printf("each_call: hash %llu\n", of_all);
  }
}

}  // namespace job
