"""Slow reference implementations of the partial multi-label methods, written from their descriptions.

They share no code with the library.
"""

import numpy as np
from scipy.optimize import nnls
from sklearn.svm import SVC


def make_task(n=60, d=5, q=4, *, seed=0, noise=0.3):
    """Return features, true labels and candidate sets that contain the true labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    Y = (X @ rng.standard_normal((d, q)) + 0.3 * rng.standard_normal((n, q)) > 0.3).astype(int)
    return X, Y, np.maximum(Y, rng.random((n, q)) < noise).astype(int)


def svt(A, t):
    """Shrink singular values by t."""
    left, s, right = np.linalg.svd(A, full_matrices=False)
    return left @ np.diag(np.maximum(s - t, 0)) @ right


def soft(A, t):
    """Shrink entries by t."""
    return np.sign(A) * np.maximum(np.abs(A) - t, 0)


def trace_norm(A):
    """Return the sum of the singular values."""
    return np.linalg.svd(A, compute_uv=False).sum()


def ni_objective(X, Y, lam, beta, gamma, U, V):
    """Return the objective of PML-NI."""
    Phi, W = np.hstack([X, np.ones((len(X), 1))]), U + V
    fit = ((Y - Phi @ W.T) ** 2).sum() / 2 + lam / 2 * (W**2).sum()
    return fit + beta * trace_norm(U) + gamma * np.abs(V).sum()


def ni_alm(X, Y, lam, beta, gamma, max_iter=500):
    """Return U, V and the iterations of the authors' PML-NI code, with a linear solve in every iteration."""
    Phi = np.hstack([X, np.ones((len(X), 1))])
    q, D = Y.shape[1], Phi.shape[1]
    W = U = V = Lambda = np.zeros((q, D))
    mu, rho, mu_max = 1e-4, 1.1, 1e10
    A, B = Y.T @ Phi, Phi.T @ Phi
    iteration = 0
    while iteration < max_iter:
        iteration += 1
        W = np.linalg.solve(B + (lam + mu) * np.eye(D), (A + mu * (U + V) + Lambda).T).T
        U_old = U
        U = svt(W - V - Lambda / mu, beta / mu)
        V = soft(W - U - Lambda / mu, gamma / mu)
        c2 = mu * np.linalg.norm(U - U_old) / np.linalg.norm(W) < 1e-5
        c1 = np.linalg.norm(W - U - V) / np.linalg.norm(W) < 1e-7
        if c2:
            mu = min(rho * mu, mu_max)
        Lambda = Lambda + mu * (U + V - W)
        if c1 and c2:
            break
    return U, V, iteration


def ni_proximal(X, Y, lam, beta, gamma, max_iter=50_000, tol=1e-10):
    """Return U and V of PML-NI by accelerated proximal gradient, restarted when it goes uphill."""
    Phi = np.hstack([X, np.ones((len(X), 1))])
    A, B = Y.T @ Phi, Phi.T @ Phi
    L = 2 * (np.linalg.norm(B, 2) + lam)
    U = V = P = Q = np.zeros_like(A, dtype=float)
    t = 1.0
    for _ in range(max_iter):
        gradient = (P + Q) @ B + lam * (P + Q) - A
        U_new, V_new = svt(P - gradient / L, beta / L), soft(Q - gradient / L, gamma / L)
        step = L * np.sqrt(((U_new - P) ** 2).sum() + ((V_new - Q) ** 2).sum())
        uphill = ((P - U_new) * (U_new - U)).sum() + ((Q - V_new) * (V_new - V)).sum() > 0
        t_new = 1.0 if uphill else (1 + np.sqrt(1 + 4 * t * t)) / 2
        momentum = 0.0 if uphill else (t - 1) / t_new
        P, Q = U_new + momentum * (U_new - U), V_new + momentum * (V_new - V)
        U, V, t = U_new, V_new, t_new
        if step <= tol * np.linalg.norm(A):
            break
    return U, V


def lrs_objective(X, U, V, W, gamma, beta, eta):
    """Return the objective of PML-LRS."""
    return ((U - X @ W) ** 2).sum() / 2 + gamma * trace_norm(U) + beta * np.abs(V).sum() + eta * trace_norm(W)


def huber_trace(X, Y, beta, eta, iterations=6000):
    """Minimize sum huber_beta(Y - XW) + eta ||W||_* by accelerated proximal gradient; return W and the minimum."""
    L = np.linalg.norm(X, 2) ** 2
    W = P = np.zeros((X.shape[1], Y.shape[1]))
    for k in range(iterations):
        W_new = svt(P + X.T @ np.clip(Y - X @ P, -beta, beta) / L, eta / L)
        r = k % 200
        P, W = W_new + r / (r + 3) * (W_new - W), W_new
    R = np.abs(Y - X @ W)
    return W, np.where(beta >= R, R**2 / 2, beta * R - beta**2 / 2).sum() + eta * trace_norm(W)


def fpml_alternating(X, Y, k, l1, l2, l3, *, iterations=4000, seed=0):
    """Minimize the objective of fPML factor by factor from a random start; return Z, W and the minimum."""
    rng = np.random.default_rng(seed)
    S, W, tiny = rng.standard_normal((len(X), k)), np.zeros((X.shape[1], Y.shape[1])), 1e-12 * np.eye(k)
    for _ in range(iterations):
        T = (Y + l2 * X @ W) / (1 + l2)
        G = np.linalg.solve(S.T @ S + tiny, S.T @ T)
        F = np.linalg.solve(S.T @ S + tiny, S.T @ X)
        S = ((Y + l2 * X @ W) @ G.T + l1 * X @ F.T) @ np.linalg.inv((1 + l2) * G @ G.T + l1 * F @ F.T + tiny)
        W = np.linalg.solve(l2 * X.T @ X + l3 * np.eye(X.shape[1]), l2 * X.T @ S @ G)
    parts = (Y - S @ G, 1), (X - S @ F, l1), (S @ G - X @ W, l2), (W, l3)
    return S @ G, W, sum(weight * (part**2).sum() for part, weight in parts)


def neighbors(X, i, among, k):
    """Return (distance, row) of the k rows nearest to row i, ties by the smaller row number."""
    distances = [(float(np.linalg.norm(X[i] - X[a])), a) for a in among if a != i]
    return sorted(distances)[:k]


def confidences(X, Y, rows, k, alpha):
    """Return the label confidences (m, q) of PARTICLE after propagation over some rows."""
    m = len(rows)
    T = np.zeros((m, m))
    for r, i in enumerate(rows):
        near = [a for _, a in neighbors(X, i, rows, k)]
        w = nnls(X[near].T, X[i], maxiter=1000)[0]
        for a, weight in zip(near, w):
            T[r, list(rows).index(a)] = weight / w.sum() if w.sum() else 0
    F0 = F = Y[rows].astype(float)
    for _ in range(1000):
        previous = F
        F = (alpha * T @ F + (1 - alpha) * F0) * F0
        F = F / np.where(F.sum(1) > 0, F.sum(1), 1)[:, None]
        if np.linalg.norm(F - previous, 2) < 1e-5:
            break
    mass = F.sum(0)
    F = F * np.where(mass > 0, F0.sum(0) / np.where(mass > 0, mass, 1), 0)
    low, high = F.min(1, keepdims=True), F.max(1, keepdims=True)
    return np.where(high > low, (F - low) / np.where(high > low, high - low, 1), F0)


def credible(X, Y, folds, k, alpha, thr):
    """Return the credible labels (n, q) of PARTICLE."""
    C = np.zeros_like(Y)
    for i in range(len(X)):
        rows = np.flatnonzero(folds != folds[i])
        F = dict(zip(rows, confidences(X, Y, rows, k, alpha)))
        near = neighbors(X, i, rows, k)
        total = sum(distance for distance, _ in near)
        r = sum((1 - distance / total) * F[a] for distance, a in near)
        r = (r - r.min()) / (r.max() - r.min())
        both = (r >= thr) & (Y[i] == 1)
        C[i] = both if both.any() else r >= thr
    return C


def pair_votes(X, C, Y, X_new):
    """Train PARTICLE's pairs with SVC; return {(j, l): (votes for j, accuracy)} where l = "v" is the virtual label."""
    q, found = Y.shape[1], {}
    for j in range(q):
        for other in [*range(j + 1, q), "v"]:
            positive = [i for i in range(len(X)) if C[i, j] == 1 and (other == "v" or Y[i, other] == 0)]
            if other == "v":
                negative = [i for i in range(len(X)) if Y[i, j] == 0 and C[i, j] == 0]
            else:
                negative = [i for i in range(len(X)) if C[i, other] == 1 and Y[i, j] == 0 and i not in positive]
            if not positive or not negative:
                found[j, other] = np.ones(len(X_new), dtype=int), 0.0
                continue
            rows, target = positive + negative, [1] * len(positive) + [0] * len(negative)
            svm = SVC(kernel="linear", C=1.0).fit(X[rows], target)
            found[j, other] = svm.predict(X_new), svm.score(X[rows], target)
    return found


def vls_votes(votes, q, i):
    """Return the weighted votes of every label and of the virtual label for row i."""
    zeta, virtual = [0.0] * q, 0.0
    for (j, other), (h, accuracy) in votes.items():
        if h[i] == 1:
            zeta[j] += accuracy
        elif other == "v":
            virtual += accuracy
        else:
            zeta[other] += accuracy
    return zeta, virtual


def map_counts(votes, q, i):
    """Return the number of votes of every label for row i."""
    counts = [0] * q
    for (j, other), (h, _) in votes.items():
        if other != "v":
            counts[j if h[i] == 1 else other] += 1
    return counts


def map_posterior(Y, C, training_counts, counts):
    """Return the PAR-MAP posterior of every label for one row of counts; likelihoods come from training rows."""
    m, q = Y.shape
    result = []
    for j in range(q):
        prior = (1 + Y[:, j].sum()) / (2 + m)
        true = [training_counts[i][j] for i in range(m) if C[i, j] == 1]
        false = [training_counts[i][j] for i in range(m) if Y[i, j] == 0]
        p_true = (1 + true.count(counts[j])) / (q + len(true))
        p_false = (1 + false.count(counts[j])) / (q + len(false))
        result.append(prior * p_true / (prior * p_true + (1 - prior) * p_false))
    return result
