#!/usr/bin/env python3
"""Writes the data of the tutorial, so that running it needs no scikit-learn.

    python3 -m venv venv && venv/bin/pip install numpy scikit-learn
    venv/bin/python examples/tutorial/make_data.py

Data: the breast cancer measurements that scikit-learn ships (sklearn.datasets.load_breast_cancer):
"Breast Cancer Wisconsin (Diagnostic)", W. Wolberg, O. Mangasarian, N. Street and W. Street, UCI
Machine Learning Repository, 1993, licence CC BY 4.0. 569 tumours, 30 measurements of each cell
nucleus in a picture; label 0 is malignant, 1 is benign. Measurements are rounded to float32.
"""
import pathlib

import numpy as np
from sklearn.datasets import load_breast_cancer

HERE = pathlib.Path(__file__).parent

data = load_breast_cancer()
np.save(HERE / "cancer_x.npy", data.data.astype(np.float32))
np.save(HERE / "cancer_y.npy", data.target.astype(np.int32))
