"""The partial multi-label methods once more, step by step and slow: from their descriptions, not the library."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls
from sklearn.svm import SVC


def make_task(n=60, d=5, q=4, *, seed=0, noise=0.3):
    """Features, true labels, and candidate sets that contain them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    Y = (X @ rng.standard_normal((d, q)) + 0.3 * rng.standard_normal((n, q)) > 0.3).astype(int)
    return X, Y, np.maximum(Y, rng.random((n, q)) < noise).astype(int)


def svt(A, t):
    left, s, right = np.linalg.svd(A, full_matrices=False)
    return left @ np.diag(np.maximum(s - t, 0)) @ right


def soft(A, t):
    return np.sign(A) * np.maximum(np.abs(A) - t, 0)


def trace_norm(A):
    return np.linalg.svd(A, compute_uv=False).sum()


def ni_objective(X, Y, lam, beta, gamma, U, V):
    Phi, W = np.hstack([X, np.ones((len(X), 1))]), U + V
    fit = ((Y - Phi @ W.T) ** 2).sum() / 2 + lam / 2 * (W**2).sum()
    return fit + beta * trace_norm(U) + gamma * np.abs(V).sum()


def ni_alm(X, Y, lam, beta, gamma, max_iter=500):
    """The released PML-NI program, line by line, with a fresh solve in every iteration."""
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


def ni_accelerated(X, Y, lam, beta, gamma, iterations=6000):
    """Plain accelerated proximal gradient on U and V together, with a restart every 200 steps."""
    Phi = np.hstack([X, np.ones((len(X), 1))])
    A, B = Y.T @ Phi, Phi.T @ Phi
    L = 2 * (np.linalg.norm(B, 2) + lam)
    U = V = P = Q = np.zeros_like(A)
    for k in range(iterations):
        gradient = (P + Q) @ B + lam * (P + Q) - A
        U_new, V_new = svt(P - gradient / L, beta / L), soft(Q - gradient / L, gamma / L)
        r = k % 200
        P, Q = U_new + r / (r + 3) * (U_new - U), V_new + r / (r + 3) * (V_new - V)
        U, V = U_new, V_new
    return U, V


def huber_trace(X, Y, beta, eta, iterations=6000):
    """min over W of sum huber_beta(Y - XW) + eta ||W||_*, by accelerated proximal gradient; W and the value."""
    L = np.linalg.norm(X, 2) ** 2
    W = P = np.zeros((X.shape[1], Y.shape[1]))
    for k in range(iterations):
        W_new = svt(P + X.T @ np.clip(Y - X @ P, -beta, beta) / L, eta / L)
        r = k % 200
        P, W = W_new + r / (r + 3) * (W_new - W), W_new
    R = np.abs(Y - X @ W)
    return W, np.where(beta >= R, R**2 / 2, beta * R - beta**2 / 2).sum() + eta * trace_norm(W)


def fpml_alternating(X, Y, k, l1, l2, l3, *, rounds=4000, seed=0):
    """fPML factor by factor from a random start: Z, W and the objective."""
    rng = np.random.default_rng(seed)
    S, W, tiny = rng.standard_normal((len(X), k)), np.zeros((X.shape[1], Y.shape[1])), 1e-12 * np.eye(k)
    for _ in range(rounds):
        T = (Y + l2 * X @ W) / (1 + l2)
        G = np.linalg.solve(S.T @ S + tiny, S.T @ T)
        F = np.linalg.solve(S.T @ S + tiny, S.T @ X)
        S = ((Y + l2 * X @ W) @ G.T + l1 * X @ F.T) @ np.linalg.inv((1 + l2) * G @ G.T + l1 * F @ F.T + tiny)
        W = np.linalg.solve(l2 * X.T @ X + l3 * np.eye(X.shape[1]), l2 * X.T @ S @ G)
    parts = (Y - S @ G, 1), (X - S @ F, l1), (S @ G - X @ W, l2), (W, l3)
    return S @ G, W, sum(weight * (part**2).sum() for part, weight in parts)


def neighbours(X, i, among, k):
    """The k nearest of some rows to row i, ties by the smaller number, and their distances."""
    distances = [(float(np.linalg.norm(X[i] - X[a])), a) for a in among if a != i]
    return sorted(distances)[:k]


def confidences(X, Y, rows, k, alpha, include_self=False):
    """Stage 1a of PARTICLE on some rows: (m, q)."""
    m = len(rows)
    T = np.zeros((m, m))
    for r, i in enumerate(rows):
        near = [a for _, a in neighbours(X, i, rows, k)]
        if include_self:
            near = [i, *near[: k - 1]]
        w = nnls(X[near].T, X[i], maxiter=1000)[0]
        for a, weight in zip(near, w):
            T[r, list(rows).index(a)] = weight / w.sum() if w.sum() else 0
    F0 = F = Y[rows].astype(float)
    for _ in range(1000):
        before = F
        F = (alpha * T @ F + (1 - alpha) * F0) * F0
        F = F / np.where(F.sum(1) > 0, F.sum(1), 1)[:, None]
        if np.linalg.norm(F - before, 2) < 1e-5:
            break
    mass = F.sum(0)
    F = F * np.where(mass > 0, F0.sum(0) / np.where(mass > 0, mass, 1), 0)
    low, high = F.min(1, keepdims=True), F.max(1, keepdims=True)
    return np.where(high > low, (F - low) / np.where(high > low, high - low, 1), F0)


def credible(X, Y, folds, k, alpha, thr, include_self=False):
    """Stage 1 of PARTICLE: credible labels (n, q)."""
    C = np.zeros_like(Y)
    for i in range(len(X)):
        rows = np.flatnonzero(folds != folds[i])
        F = dict(zip(rows, confidences(X, Y, rows, k, alpha, include_self)))
        near = neighbours(X, i, rows, k)
        total = sum(distance for distance, _ in near)
        r = sum((1 - distance / total) * F[a] for distance, a in near)
        r = (r - r.min()) / (r.max() - r.min())
        both = (r >= thr) & (Y[i] == 1)
        C[i] = both if both.any() else r >= thr
    return C


def pair_votes(X, C, Y, X_new):
    """Stage 2 with SVC: {(j, l): (votes for j of new rows, accuracy)}; l = "v" is the virtual label."""
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
    """zeta of every label and of the virtual one, for row i."""
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
    """c of every label for row i."""
    counts = [0] * q
    for (j, other), (h, _) in votes.items():
        if other != "v":
            counts[j if h[i] == 1 else other] += 1
    return counts


def map_posterior(Y, C, training_counts, counts):
    """PAR-MAP with the likelihood counted on training rows: posterior of every label for one row's counts."""
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
