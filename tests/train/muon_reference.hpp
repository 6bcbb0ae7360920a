// Newton-Schulz by its definition, in double.
#pragma once

#include "moeloom/base/index.hpp"

#include <cmath>
#include <vector>

namespace moeloom::testing {

using Doubles = std::vector<double>;

/// [m, n] row-major times [n, k], in double.
inline Doubles product(const Doubles& a, const Doubles& b, Index m, Index n, Index k) {
  Doubles c(at(m * k));
  for (Index i = 0; i < m; ++i)
    for (Index l = 0; l < n; ++l)
      for (Index j = 0; j < k; ++j) c[at(i * k + j)] += a[at(i * n + l)] * b[at(l * k + j)];
  return c;
}

inline Doubles transposed(const Doubles& a, Index m, Index n) {
  Doubles t(a.size());
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) t[at(j * m + i)] = a[at(i * n + j)];
  return t;
}

/// By the definition, in double.
inline Doubles newton_schulz(Doubles x, Index m, Index n, Index iterations) {
  double norm = 0;
  for (const double value : x) norm += value * value;
  for (double& value : x) value /= std::sqrt(norm) + 1e-7;
  for (Index iteration = 0; iteration < iterations; ++iteration) {
    const Doubles a = product(x, transposed(x, m, n), m, n, m), a2 = product(a, a, m, m, m);
    Doubles b(a.size());
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * a2[i];
    const Doubles bx = product(b, x, m, m, n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return x;
}

}  // namespace moeloom::testing
